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

// notificationSecretName names what signs the notifications of an app: a secret of the app's own, for the default app a setting
// of the process.
const notificationSecretName = "STOA_NOTIFICATION_SECRET"

// notificationSettings say how the default app's callers are told. Each stands in the environment as STOA_NOTIFICATION_ and its
// name.
type notificationSettings struct {
	PrivateNetwork bool `split_words:"true"` // whoever may call the app may have private addresses told
}

// loadNotificationSettings reads how the default app's callers are told.
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

// openNotifications makes ready to tell addresses of tasks: those that configurations name or let webhooks name, and those of callers
// if the operator wants that.
func (h *server) openNotifications(context.Context) error {
	if err := h.defaultApp.loadNotificationSettings(); err != nil {
		return err
	}
	forms := maps.Clone(a2a.Formats)
	maps.Copy(forms, webhook.Formats)
	databases := []*db.DB{h.deps.InMemory.DB} // no other process knows what is in memory here
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

// acquireNotifier lends the desk of an app that answers.
func (h *server) acquireNotifier(ctx context.Context, tenant db.ID) (*notify.Notifier, func(), error) {
	a, _, release, err := h.runtimes.Acquire(ctx, tenant)
	if err != nil {
		return nil, nil, fmt.Errorf("load app %s: %w", tenant, err)
	}
	return a.Notifier(), release, nil
}

// runDispatchers tells addresses until ctx ends.
func (h *server) runDispatchers(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range h.dispatchers {
		g.Go(func() error { return c.Run(ctx) })
	}
	return g.Wait()
}

// parseNotificationSecret returns what signs the notifications of an app with these secrets, nil if nothing does.
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
