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

// tell reads how the default app's callers are told.
func (o *own) tell() error {
	var s notificationSettings
	if err := envconfig.Process("stoa_notification", &s); err != nil {
		return envError(err)
	}
	text, err := secretFrom(notificationSecretName)
	if err != nil {
		return err
	}
	o.telling.Inside = s.PrivateNetwork
	if text != "" {
		if o.telling.Secret, err = egress.ParseSecret(text); err != nil {
			return fmt.Errorf("%s: %w", notificationSecretName, err)
		}
	}
	return nil
}

// openNotify makes ready to tell addresses of tasks: those that configurations name or let webhooks name, and those of callers
// if the operator wants that.
func (h *house) openNotify(context.Context) error {
	if err := h.own.tell(); err != nil {
		return err
	}
	forms := maps.Clone(a2a.Forms)
	maps.Copy(forms, webhook.Forms)
	databases := []*db.DB{h.shared.Volatile.DB} // no other process knows what is in memory here
	if h.settings.role != roleWeb {
		databases = append(databases, h.db)
	}
	for _, d := range databases {
		h.couriers = append(h.couriers, notify.NewCourier(d, notify.CourierOptions{Desk: h.desk, Forms: forms, Log: h.log}))
	}
	cfg := h.own.cfg.Load()
	h.shared.Notify = &app.Notify{Push: cfg != nil && cfg.Server.PushNotifications, Made: func() {
		for _, c := range h.couriers {
			c.Wake()
		}
	}}
	if h.meters != nil {
		h.shared.Notify.Tried = h.meters.notified
	}
	return nil
}

// desk lends the desk of an app that answers.
func (h *house) desk(ctx context.Context, tenant db.ID) (*notify.Desk, func(), error) {
	a, _, release, err := h.live.Acquire(ctx, tenant)
	if err != nil {
		return nil, nil, fmt.Errorf("load app %s: %w", tenant, err)
	}
	return a.Desk(), release, nil
}

// notify tells addresses until ctx ends.
func (h *house) notify(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range h.couriers {
		g.Go(func() error { return c.Run(ctx) })
	}
	return g.Wait()
}

// signing returns what signs the notifications of an app with these secrets, nil if nothing does.
func signing(secret func(name string) (string, bool)) ([]byte, error) {
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
