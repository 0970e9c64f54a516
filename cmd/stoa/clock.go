package main

import (
	"context"
	"errors"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/surface/webhook"
	"stoa/agentsvc/trigger"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// keepTime starts agents by their schedules until ctx ends.
func (h *house) keepTime(ctx context.Context) error {
	c := trigger.NewClock(h.db, trigger.ClockOptions{Plan: h.plan, Start: h.tick, Log: h.log})
	defer h.bus.Watch(tenancy.TopicApp, func(string) { c.Wake() })()
	return c.Run(ctx)
}

// plan reads the schedules of an app. One that does not answer, and one whose configuration does not load, has none.
func (h *house) plan(ctx context.Context, id db.ID) (trigger.Plan, error) {
	s, err := h.apps.Snapshot(ctx, id, 0)
	if err != nil {
		return trigger.Plan{}, err
	}
	p := trigger.Plan{Generation: s.App.Generation, Crons: map[string]*trigger.Cron{}}
	cfg := h.own.cfg.Load()
	if id != tenancy.DefaultID {
		if s.App.Status != tenancy.Active {
			return p, nil
		}
		cfg, err = config.Parse(s.Config, config.Options{Lookup: s.Secret, Tenant: true, Grants: s.App.Grants, Lend: environ})
		if err != nil {
			h.log.Warn("the schedules of an app are not kept: its configuration does not load", "app", s.App.Name)
			return p, nil //nolint:nilerr // whoever calls the app is told
		}
	}
	for name, a := range cfg.Agents {
		if t := a.Trigger; t != nil && t.Enabled && t.Type == "schedule" {
			c, err := trigger.ParseCron(t.Cron, t.Timezone)
			if err != nil {
				h.log.Warn("a schedule is not kept", "app", s.App.Name, "agent", name, "error", err)
				continue
			}
			p.Crons[name] = c
		}
	}
	return p, nil
}

// tick starts the agent of a tick.
func (h *house) tick(ctx context.Context, t trigger.Tick) (agentsvc.TaskID, error) {
	a, of, release, err := h.live.Acquire(ctx, t.Tenant)
	if err != nil {
		return "", err
	}
	defer release()
	id, err := a.Tick(ctx, t)
	if h.meters != nil && !errors.Is(err, trigger.ErrOff) {
		h.meters.tick(of.Name, err)
	}
	return id, err
}

// webhooks is what the surface of webhooks needs.
func (h *house) webhooks() webhook.Options {
	o := webhook.Options{DB: h.db}
	if h.meters != nil {
		o.Count = h.meters.deliver
	}
	return o
}
