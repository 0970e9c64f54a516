package trigger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// AppSchedules is the schedules of an app, at a generation of it; a suspended app has none.
type AppSchedules struct {
	Generation int64
	Crons      map[string]*Cron // by agent
}

// Tick is one time at which an agent is to be started.
type Tick struct {
	Tenant db.ID
	Agent  string
	Spec   string // of the schedule as [Cron.String] writes it
	At     time.Time
}

// ErrTickRefused says that a tick may not start its agent. It is over with that; the next one may.
var ErrTickRefused = errors.New("the tick is refused")

// ErrNoSchedule says that an agent has no such schedule any more.
var ErrNoSchedule = errors.New("the agent has no such schedule")

// SchedulerOptions say what a [Scheduler] reads and starts. Plan and Start are required.
type SchedulerOptions struct {
	// LoadSchedules reads the schedules of an app. [tenancy.ErrNotFound] says that it is not there: to this process.
	LoadSchedules func(ctx context.Context, app db.ID) (AppSchedules, error)
	// StartTick starts an agent under the tick's key, so that doing it again finds the same task. After an [ErrTickRefused] the tick
	// is over, after any other error it is tried again.
	StartTick func(ctx context.Context, t Tick) (agentsvc.TaskID, error)
	Log       *slog.Logger

	TickInterval time.Duration // between looks for ticks; 1 second
	SyncInterval time.Duration // between looks for apps that no signal told of; 10 seconds
	ClaimTTL     time.Duration // how long a tick is its taker's; 15 seconds
	MaxStarts    int           // ticks that are started at a time; 32
}

// Scheduler starts agents by their schedules, those of every app of the database. In every process there may be one.
type Scheduler struct {
	table            scheduleTable
	options          SchedulerOptions
	wake             chan struct{}
	defaultSchedules AppSchedules // of the default app, which is this process's

	starts        sync.WaitGroup
	startPermits  chan struct{}
	mu            sync.Mutex
	startingByApp map[db.ID]int // ticks of an app that are being started
}

// maxTicksPerApp is how many ticks of an app are started at a time, so that one that is slow to load leaves room for others.
const maxTicksPerApp = 4

// NewScheduler returns a clock over the schedules of d.
func NewScheduler(d *db.DB, o SchedulerOptions) *Scheduler {
	o.TickInterval, o.SyncInterval = cmp.Or(o.TickInterval, time.Second), cmp.Or(o.SyncInterval, 10*time.Second)
	o.ClaimTTL, o.MaxStarts = cmp.Or(o.ClaimTTL, 15*time.Second), cmp.Or(o.MaxStarts, 32)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Scheduler{table: scheduleTable{d}, options: o, wake: make(chan struct{}, 1), startPermits: make(chan struct{}, o.MaxStarts), startingByApp: map[db.ID]int{}}
}

// Wake has the clock look for changed apps soon.
func (c *Scheduler) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run lives until ctx ends.
func (c *Scheduler) Run(ctx context.Context) error {
	tickTimer, syncTimer := time.NewTicker(c.options.TickInterval), time.NewTicker(c.options.SyncInterval)
	defer tickTimer.Stop()
	defer syncTimer.Stop()
	defer c.starts.Wait()
	healthy := true
	for runNext := c.syncSchedules; ; {
		err := runNext(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if (err == nil) != healthy {
			if healthy = err == nil; healthy {
				c.options.Log.InfoContext(ctx, "schedules are kept again")
			} else {
				c.options.Log.WarnContext(ctx, "schedules are not kept at present", "error", err)
			}
		}
		select {
		case <-tickTimer.C:
			runNext = c.startDueTicks
		case <-syncTimer.C:
			runNext = c.syncSchedules
		case <-c.wake:
			runNext = c.syncSchedules
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// syncSchedules brings the table up to date with the apps that have changed.
func (c *Scheduler) syncSchedules(ctx context.Context) error {
	defaultApp, err := c.options.LoadSchedules(ctx, tenancy.DefaultID)
	switch {
	case errors.Is(err, tenancy.ErrNotFound):
		c.defaultSchedules = AppSchedules{}
	case err != nil:
		return fmt.Errorf("read the schedules of the app %s: %w", tenancy.DefaultName, err)
	case defaultApp.Generation != c.defaultSchedules.Generation:
		if err := c.table.saveSchedules(ctx, tenancy.DefaultID, defaultApp.Generation, defaultApp.Crons); err != nil {
			return err
		}
		c.defaultSchedules = defaultApp
	}
	ids, err := c.table.findChangedApps(ctx)
	if len(ids) == maxAppsPerQuery {
		c.Wake()
	}
	for _, id := range ids {
		p, wrong := c.options.LoadSchedules(ctx, id)
		switch {
		case errors.Is(wrong, tenancy.ErrNotFound):
			continue // deleted since
		case wrong == nil:
			wrong = c.table.saveSchedules(ctx, id, p.Generation, p.Crons)
		}
		err = errors.Join(err, wrong)
	}
	return err
}

// startDueTicks has what is due started, as far as there is room, and waits for none of it.
func (c *Scheduler) startDueTicks(ctx context.Context) error {
	due, err := c.table.findDueTicks(ctx)
	if err != nil {
		return err
	}
	for _, d := range due {
		if defaultApp := c.defaultSchedules.Crons[d.Agent]; d.Tenant == tenancy.DefaultID && (defaultApp == nil || defaultApp.String() != d.Spec) {
			continue // of another process's file
		}
		if !c.adjustStarting(d.Tenant, 1) {
			continue
		}
		select {
		case c.startPermits <- struct{}{}:
		case <-time.After(c.options.TickInterval):
			c.adjustStarting(d.Tenant, -1)
			return nil // they are due still
		}
		c.starts.Go(func() {
			if err := c.startTick(ctx, d); err != nil && ctx.Err() == nil {
				c.options.Log.WarnContext(ctx, "a tick could not be started and is tried again", "app", d.Tenant, "agent", d.Agent, "error", err)
			}
			<-c.startPermits
			c.adjustStarting(d.Tenant, -1)
		})
	}
	return nil
}

// adjustStarting counts a tick of an app that is being started, or with -1 no longer is, and reports whether there was room for it.
func (c *Scheduler) adjustStarting(app db.ID, n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 && c.startingByApp[app] == maxTicksPerApp {
		return false
	}
	if c.startingByApp[app] += n; c.startingByApp[app] == 0 {
		delete(c.startingByApp, app)
	}
	return true
}

// startTick starts one agent, if nobody else does. Of several ticks that were missed it is started for the last.
func (c *Scheduler) startTick(ctx context.Context, d DueTick) error {
	cron, err := ParseCronSpec(d.Spec)
	if err != nil {
		return err
	}
	if mine, err := c.table.claimTick(ctx, d, c.options.ClaimTTL); err != nil || !mine {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.ClaimTTL*2/3)
	defer cancel()
	t := Tick{d.Tenant, d.Agent, d.Spec, cron.LatestTick(d.At, d.Now)}
	o := Outcome{At: t.At}
	o.Task, err = c.options.StartTick(ctx, t)
	refused := errors.Is(err, ErrTickRefused)
	switch {
	case errors.Is(err, ErrNoSchedule), errors.Is(err, tenancy.ErrNotFound), errors.Is(err, tenancy.ErrSuspended):
		return nil // the table will know soon
	case refused:
		o.Error = err.Error()
		c.options.Log.WarnContext(ctx, "a schedule may not start its agent", "app", t.Tenant, "agent", t.Agent, "scheduled_at", t.At, "error", err)
	case err != nil:
		c.options.Log.WarnContext(ctx, "a schedule could not start its agent and tries again", "app", t.Tenant, "agent", t.Agent, "scheduled_at", t.At, "error", err)
		return nil
	}
	return c.table.finishTick(ctx, d, o, cron.Next(d.Now))
}
