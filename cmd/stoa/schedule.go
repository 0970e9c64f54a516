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

// runSchedules starts agents by their schedules until ctx ends. Every process runs a scheduler; each tick is claimed
// in the database, so that one process starts it. A change of any app wakes the scheduler to read that app's
// schedules again.
func (h *server) runSchedules(ctx context.Context) error {
	c := trigger.NewScheduler(h.db, trigger.SchedulerOptions{LoadSchedules: h.loadSchedules, StartTick: h.startTick, Log: h.log})
	// The watch ends with the scheduler. A lost signal is made up for by the scheduler's own polling.
	defer h.bus.WatchTopic(tenancy.TopicApp, func(string) { c.Wake() })()
	return c.Run(ctx)
}

// loadSchedules returns the schedules of an app's current revision, at the app's generation. The scheduler calls it
// again when the generation has changed: a new revision's schedules replace the stored ones, and a schedule that the
// revision no longer has is not started. An app that is suspended, or whose configuration does not load, has no
// schedules until its next change.
func (h *server) loadSchedules(ctx context.Context, id db.ID) (trigger.AppSchedules, error) {
	s, err := h.apps.LoadSnapshot(ctx, id, 0)
	if err != nil {
		return trigger.AppSchedules{}, err
	}
	p := trigger.AppSchedules{Generation: s.App.Generation, Crons: map[string]*trigger.Cron{}}
	cfg := h.defaultApp.cfg.Load()
	if id != tenancy.DefaultID {
		// The default app is always active.
		if s.App.Status != tenancy.Active {
			return p, nil
		}
		cfg, err = config.Parse(s.Config, config.Options{Lookup: s.Secret, Tenant: true, Grants: s.App.Grants, OperatorKey: lookupEnv})
		if err != nil {
			h.log.Warn("the schedules of an app do not run: its configuration does not load", "app", s.App.Name)
			return p, nil //nolint:nilerr // callers of the app get the error
		}
	}
	for name, a := range cfg.Agents {
		if t := a.Trigger; t != nil && t.Enabled && t.Type == "schedule" {
			c, err := trigger.ParseCron(t.Cron, t.Timezone)
			if err != nil {
				h.log.Warn("a schedule does not run", "app", s.App.Name, "agent", name, "error", err)
				continue
			}
			p.Crons[name] = c
		}
	}
	return p, nil
}

// startTick starts the agent of a tick with the app's current revision. Starting the same tick twice finds the same
// task (see [trigger.SchedulerOptions]). A tick whose schedule no longer exists is not counted.
func (h *server) startTick(ctx context.Context, t trigger.Tick) (agentsvc.TaskID, error) {
	a, of, release, err := h.runtimes.Acquire(ctx, t.Tenant)
	if err != nil {
		return "", err
	}
	defer release()
	id, err := a.StartTick(ctx, t)
	if h.metrics != nil && !errors.Is(err, trigger.ErrNoSchedule) {
		h.metrics.recordTick(of.Name, err)
	}
	return id, err
}

// webhookOptions returns the options of the webhook surface.
func (h *server) webhookOptions() webhook.Options {
	o := webhook.Options{DB: h.db}
	if h.metrics != nil {
		o.OnDelivery = h.metrics.recordDelivery
	}
	return o
}
