package main

import (
	"context"
	"fmt"
	"maps"

	"github.com/kelseyhightower/envconfig"
	"golang.org/x/sync/errgroup"

	"stoa/agentsvc/app"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/notify"
	"stoa/agentsvc/surface/a2a"
	"stoa/agentsvc/surface/webhook"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// notificationSecretName is the name of the secret that signs the notifications of an app (Standard Webhooks): a
// secret of the app, for the default app a secret of the process.
const notificationSecretName = "STOA_NOTIFICATION_SECRET"

// notificationSettings are the default app's settings of notifications, from STOA_NOTIFICATION_ and the field's name.
type notificationSettings struct {
	// PrivateNetwork lets callers of the default app name receivers in private networks.
	PrivateNetwork bool `split_words:"true"`
}

// loadNotificationSettings reads the notification settings of the default app from the environment. It is called
// once, by openNotifications.
func (o *defaultApp) loadNotificationSettings() error {
	var s notificationSettings
	if err := envconfig.Process("stoa_notification", &s); err != nil {
		return envError(err)
	}
	text, err := readSecret(notificationSecretName)
	if err != nil {
		return err
	}
	o.notifications.PrivateNetwork = s.PrivateNetwork
	if text != "" {
		if o.notifications.Secret, err = egress.ParseSecret(text); err != nil {
			return fmt.Errorf("%s: %w", notificationSecretName, err)
		}
	}
	return nil
}

// openNotifications creates the dispatchers that deliver notifications: to addresses in configurations, to callbacks
// of webhooks, and to addresses of callers if server.push_notifications allows them. A web process delivers only
// those of its in-memory database, which no other process can read; workers deliver those of the durable one.
func (h *server) openNotifications(context.Context) error {
	if err := h.defaultApp.loadNotificationSettings(); err != nil {
		return err
	}
	// The formats of request bodies, by the name that a receiver's row has: one protocol, one entry.
	forms := maps.Clone(a2a.Formats)
	maps.Copy(forms, webhook.Formats)
	// The in-memory database cannot be read by another process.
	databases := []*db.DB{h.deps.InMemory.DB} // no other process can read the in-memory database
	if h.settings.role != roleWeb {
		databases = append(databases, h.db)
	}
	for _, d := range databases {
		h.dispatchers = append(h.dispatchers, notify.NewDispatcher(d, notify.DispatcherOptions{Notifier: h.acquireNotifier, Formats: forms, Log: h.log}))
	}
	cfg := h.defaultApp.cfg.Load()
	h.deps.Notifications = &app.NotifyOptions{PushEnabled: cfg != nil && cfg.Server.PushNotifications, OnQueued: func() {
		for _, c := range h.dispatchers {
			c.Wake()
		}
	}}
	if h.metrics != nil {
		h.deps.Notifications.OnAttempt = h.metrics.recordNotification
	}
	return nil
}

// acquireNotifier returns the notifier of an active app and the function that releases its runtime.
func (h *server) acquireNotifier(ctx context.Context, tenant db.ID) (*notify.Notifier, func(), error) {
	a, _, release, err := h.runtimes.Acquire(ctx, tenant)
	if err != nil {
		return nil, nil, fmt.Errorf("load app %s: %w", tenant, err)
	}
	return a.Notifier(), release, nil
}

// runDispatchers delivers notifications until ctx ends.
func (h *server) runDispatchers(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range h.dispatchers {
		g.Go(func() error { return c.Run(ctx) })
	}
	return g.Wait()
}

// parseNotificationSecret returns the key that signs an app's notifications, nil if the app has no such secret. A
// malformed secret is a [tenancy.InvalidError].
func parseNotificationSecret(secret func(name string) (string, bool)) ([]byte, error) {
	text, there := secret(notificationSecretName)
	if !there {
		return nil, nil
	}
	raw, err := egress.ParseSecret(text)
	if err != nil {
		return nil, &tenancy.InvalidError{Field: "secrets." + notificationSecretName, Reason: err.Error()}
	}
	return raw, nil
}
