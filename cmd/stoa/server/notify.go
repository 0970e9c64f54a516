package server

import (
	"context"
	"fmt"
	"maps"

	"github.com/kelseyhightower/envconfig"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/notify"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/surface/a2a"
	"stoa/agentsvc/surface/webhook"
	"stoa/tenancy/db"
)

// NotificationSecretName is the name of the secret that signs the notifications of an app (Standard Webhooks): a
// secret of the app, for the default app a secret of the process.
const NotificationSecretName = "STOA_NOTIFICATION_SECRET"

// notificationSettings are the default app's Settings of notifications, from STOA_NOTIFICATION_ and the field's name.
type notificationSettings struct {
	// PrivateNetwork lets callers of the default app name receivers in private networks.
	PrivateNetwork bool `split_words:"true"`
}

// loadNotificationSettings returns the notification settings of the default app from the environment.
func loadNotificationSettings() (runtime.NotificationSettings, error) {
	var s notificationSettings
	if err := envconfig.Process("stoa_notification", &s); err != nil {
		return runtime.NotificationSettings{}, envError(err)
	}
	text, err := readSecret(NotificationSecretName)
	if err != nil || text == "" {
		return runtime.NotificationSettings{PrivateNetwork: s.PrivateNetwork}, err
	}
	secret, err := egress.ParseSecret(text)
	if err != nil {
		return runtime.NotificationSettings{}, fmt.Errorf("%s: %w", NotificationSecretName, err)
	}
	return runtime.NotificationSettings{PrivateNetwork: s.PrivateNetwork, Secret: secret}, nil
}

// newDispatchers returns the dispatchers that deliver notifications: to addresses in configurations, to callbacks of
// webhooks, and to addresses of callers if server.push_notifications allows them. A web process delivers only those of
// its in-memory database, which no other process can read; workers deliver those of the durable one. notifier returns
// the notifier of an active app.
func newDispatchers(o Options, d runtime.Dependencies, notifier func(context.Context, db.ID) (*notify.Notifier, func(), error)) []*notify.Dispatcher {
	// The formats of request bodies, by the name that a receiver's row has: one protocol, one entry.
	formats := maps.Clone(a2a.Formats)
	maps.Copy(formats, webhook.Formats)
	databases := []*db.DB{d.InMemory.DB}
	if o.Settings.Role != roleWeb {
		databases = append(databases, d.DB)
	}
	var all []*notify.Dispatcher
	for _, d := range databases {
		all = append(all, notify.NewDispatcher(d, notify.DispatcherOptions{Notifier: notifier, Formats: formats, Log: o.Log}))
	}
	return all
}

// newNotifyOptions returns how apps hand notifications to dispatchers.
func newNotifyOptions(o Options, dispatchers []*notify.Dispatcher, t telemetry) *runtime.NotifyOptions {
	cfg := o.DefaultApp.Config()
	n := &runtime.NotifyOptions{PushEnabled: cfg != nil && cfg.Server.PushNotifications, OnQueued: func() {
		for _, c := range dispatchers {
			c.Wake()
		}
	}}
	if t.metrics != nil {
		n.OnAttempt = t.metrics.RecordNotification
	}
	return n
}

// parseNotificationSecret returns the key that signs an app's notifications, nil if the app has no such secret. A
// malformed secret is an error with [agentsvc.CodeInvalid].
func parseNotificationSecret(secret func(name string) (string, bool)) ([]byte, error) {
	text, there := secret(NotificationSecretName)
	if !there {
		return nil, nil
	}
	raw, err := egress.ParseSecret(text)
	if err != nil {
		return nil, agentsvc.NewInvalidError("secrets."+NotificationSecretName, "%s", err)
	}
	return raw, nil
}
