package server

import (
	"context"
	"log/slog"
	"sync"

	"stoa/agentsvc/retention"
	"stoa/agentsvc/store"
	"stoa/agentsvc/trigger"
	"stoa/billing"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// newScheduler returns what starts agents by their schedules. Every process runs one; each tick is claimed in the
// database, so that one process starts it.
func (s *Server) newScheduler() *trigger.Scheduler {
	return trigger.NewScheduler(s.Storage.DB, trigger.SchedulerOptions{LoadConfigured: s.backgroundConfigs.loadSchedules, CheckBuild: s.Execution.checkBuild, StartTick: s.Execution.startTick, Bus: s.bus, Log: s.Log})
}

// NewSweeper returns what deletes the data that the retention of apps no longer keeps.
func (s *Server) NewSweeper(log *slog.Logger) *retention.Sweeper {
	o := retention.Options{Process: s.reporter.ProcessID(), Apps: s.Apps, LoadPolicy: s.backgroundConfigs.loadPolicy, SweepExternal: s.Execution.sweepExternal, Log: log}
	if s.telemetry.metrics != nil {
		o.OnSwept = s.telemetry.metrics.RecordSweep
	}
	return retention.NewSweeper(s.Storage.DB, o)
}

// backgroundConfigs caches what background work reads of the apps' current configurations. A configuration is parsed for it
// once for each generation of its app: a generation changes with the revision, the secrets, the grants and the status.
type backgroundConfigs struct {
	apps       *tenancy.Service
	defaultApp *DefaultApp
	memory     *configMemory
	billing    *billing.Service
	log        *slog.Logger

	mu    sync.Mutex // guards byApp
	byApp map[db.ID]backgroundConfig
}

// backgroundConfig is what background work reads of a configuration. It is immutable.
type backgroundConfig struct {
	generation int64
	crons      map[string]*trigger.Cron // by agent; nil if one of them is invalid
	retention  retention.Policy         // of the configuration, without the plan's
}

// maxBackgroundConfigs bounds backgroundConfigs.byApp. A full map is emptied: what is missing is read again.
const maxBackgroundConfigs = 10_000

// newBackgroundConfigs returns an empty backgroundConfigs.
func newBackgroundConfigs(apps *tenancy.Service, mine *DefaultApp, memory *configMemory, b *billing.Service, log *slog.Logger) *backgroundConfigs {
	return &backgroundConfigs{apps: apps, defaultApp: mine, memory: memory, billing: b, log: log, byApp: map[db.ID]backgroundConfig{}}
}

// loadSchedules returns the schedules of an app's current revision, at the app's generation. The scheduler calls it when
// the generation has changed, and for the default app at each synchronization: a new revision's schedules replace the
// stored ones, and a schedule that the revision no longer has is not started. An app that is suspended has no schedules.
// Those of an app whose configuration does not load are unknown, see [trigger.AppSchedules].
func (c *backgroundConfigs) loadSchedules(ctx context.Context, id db.ID) (trigger.AppSchedules, error) {
	s, err := c.apps.LoadSnapshot(ctx, id, 0)
	if err != nil {
		return trigger.AppSchedules{}, err
	}
	// The default app is always active.
	if id != tenancy.DefaultID && s.App.Status != tenancy.Active {
		return trigger.AppSchedules{Generation: s.App.Generation, Crons: map[string]*trigger.Cron{}}, nil
	}
	d, err := c.derive(s)
	if err != nil {
		c.log.Warn("the schedules of an app stay as they are: its configuration does not load", "app", s.App.Name)
		return trigger.AppSchedules{Generation: s.App.Generation}, nil //nolint:nilerr // a caller of the app gets the error
	}
	return trigger.AppSchedules{Generation: d.generation, Crons: d.crons}, nil
}

// loadPolicy returns the retention of an app: that of its configuration, and what that leaves at zero from its plan.
func (c *backgroundConfigs) loadPolicy(ctx context.Context, a tenancy.App) (retention.Policy, error) {
	d, ok := c.find(a.ID, a.Generation)
	if !ok {
		s, err := c.apps.LoadSnapshot(ctx, a.ID, 0)
		if err != nil {
			return retention.Policy{}, err
		}
		if d, err = c.derive(s); err != nil {
			return retention.Policy{}, err
		}
	}
	plan, _ := c.billing.Prices.CachedPlan(a.Plan)
	return d.retention.WithDefaults(store.Retention(plan.Retention)), nil
}

// find returns the entry of an app if it is of that generation.
func (c *backgroundConfigs) find(id db.ID, generation int64) (backgroundConfig, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, ok := c.byApp[id]
	return d, ok && d.generation == generation
}

// derive returns what background work reads of a snapshot's configuration, and caches it.
func (c *backgroundConfigs) derive(s *tenancy.Snapshot) (backgroundConfig, error) {
	if d, ok := c.find(s.App.ID, s.App.Generation); ok {
		return d, nil
	}
	cfg, err := c.defaultApp.parseConfig(s, c.memory)
	if err != nil {
		return backgroundConfig{}, err
	}
	crons, err := trigger.ConfiguredCrons(cfg)
	if err != nil {
		c.log.Warn("the schedules of an app stay as they are", "app", s.App.Name, "error", err)
	}
	d := backgroundConfig{s.App.Generation, crons, retention.ReadPolicy(cfg)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byApp) >= maxBackgroundConfigs {
		clear(c.byApp)
	}
	c.byApp[s.App.ID] = d
	return d, nil
}
