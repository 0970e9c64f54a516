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
	"stoa/tenancy/signal"
)

// AppSchedules are the schedules of an app at a generation of its record. A suspended app has none.
type AppSchedules struct {
	Generation int64 // see [tenancy.Version]
	// Crons are by agent. nil means that they are unknown, because the configuration does not load: the stored schedules
	// stay as they are.
	Crons map[string]*Cron
}

// Tick is one scheduled start of an agent.
type Tick struct {
	Tenant db.ID
	Agent  string
	// Spec identifies the schedule; it is [Cron.String].
	Spec string
	// At is the scheduled time.
	At time.Time
}

// ErrTickRefused reports that the agent may not be started for a tick. The tick is done; the next one is tried as
// usual.
var ErrTickRefused = errors.New("the tick is refused")

// ErrNoSchedule reports that the agent no longer has the schedule of a tick.
var ErrNoSchedule = errors.New("the agent has no such schedule")

// SchedulerOptions are the options of a [Scheduler]. LoadConfigured and StartTick are required.
type SchedulerOptions struct {
	// LoadConfigured returns the schedules of an app. It returns [agentsvc.CodeNotFound] for an app that this process does
	// not have.
	LoadConfigured func(ctx context.Context, app db.ID) (AppSchedules, error)
	// CheckBuild returns an error while the runtime of an app at a generation of its record is not in use, because
	// its configuration cannot be built or is being built: the stored schedules stay as they are, and the app is
	// asked about again after SyncInterval. Only apps that have or had schedules are asked about, the default app is
	// not. nil = all can.
	CheckBuild func(ctx context.Context, app db.ID, generation int64) error
	// StartTick starts an agent with an idempotency key that follows from the tick, so that a repetition returns the
	// same task. After [ErrTickRefused] the tick is done. After [ErrNoSchedule], [agentsvc.CodeNotFound] or
	// [tenancy.ErrSuspended] nothing is recorded, since the schedule is about to be replaced or deleted. After any
	// other error the start is repeated when the claim has expired.
	StartTick func(ctx context.Context, t Tick) (agentsvc.TaskID, error)
	// Bus wakes the scheduler when an app changes; nil = it finds changed apps by its own queries, as it does after a
	// lost signal.
	Bus *signal.Bus
	Log *slog.Logger

	// TickInterval is the interval between searches for due ticks; 1 second if zero.
	TickInterval time.Duration
	// SyncInterval is the interval between searches for changed apps that no signal reported; 10 seconds if zero.
	SyncInterval time.Duration
	// ClaimTTL is how long a process has a tick it has claimed; 15 seconds if zero. A start may take two thirds of it.
	ClaimTTL time.Duration
	// MaxStarts bounds the concurrent starts; 32 if zero.
	MaxStarts int
}

// Scheduler starts the agents of all apps of a database by their schedules. Each process has one; claims make each tick
// start once.
type Scheduler struct {
	table   scheduleTable
	options SchedulerOptions
	wake    chan struct{}
	// defaultSchedules are those of the default app, whose configuration is this process's file. Used by the goroutine
	// of Run only.
	defaultSchedules AppSchedules
	// unloaded are the apps that this process could not load. syncedTo is the last app of a page of changed apps that
	// another one follows. Both are used by the goroutine of Run only.
	unloaded map[db.ID]unloadedApp
	syncedTo db.ID

	// starts are the goroutines that start ticks. startPermits has MaxStarts slots, each held by one of them.
	starts       sync.WaitGroup
	startPermits chan struct{}
	// mu guards starting.
	mu sync.Mutex
	// starting has the agents whose starts are in progress, by app.
	starting map[db.ID]map[string]bool
}

// unloadedApp is a generation of an app whose schedules are unknown. retryAt is when the app is tried again at that
// generation, zero for never: a configuration that does not parse stays so.
type unloadedApp struct {
	generation int64
	retryAt    time.Time
}

// maxTicksPerApp bounds the concurrent starts of one app, so that an app that is slow to load does not delay others.
const maxTicksPerApp = 4

// NewScheduler returns a scheduler for the schedules in d.
func NewScheduler(d *db.DB, o SchedulerOptions) *Scheduler {
	o.TickInterval, o.SyncInterval = cmp.Or(o.TickInterval, time.Second), cmp.Or(o.SyncInterval, 10*time.Second)
	o.ClaimTTL, o.MaxStarts = cmp.Or(o.ClaimTTL, 15*time.Second), cmp.Or(o.MaxStarts, 32)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Scheduler{table: scheduleTable{d}, options: o, wake: make(chan struct{}, 1), startPermits: make(chan struct{}, o.MaxStarts), starting: map[db.ID]map[string]bool{}, unloaded: map[db.ID]unloadedApp{}}
}

// wakeUp makes the scheduler look for changed apps soon. It does not block.
func (s *Scheduler) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run starts due ticks and synchronizes schedules until ctx ends, and then waits for the starts in progress. Failures
// are logged once at their beginning and end.
func (s *Scheduler) Run(ctx context.Context) error {
	tickTimer, syncTimer := time.NewTicker(s.options.TickInterval), time.NewTicker(s.options.SyncInterval)
	defer tickTimer.Stop()
	defer syncTimer.Stop()
	defer s.starts.Wait()
	defer s.options.Bus.WatchTopic(tenancy.TopicApp, func(string) { s.wakeUp() })()
	healthy := true
	for runNext := s.syncSchedules; ; {
		err := runNext(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if (err == nil) != healthy {
			if healthy = err == nil; healthy {
				s.options.Log.InfoContext(ctx, "schedules run again")
			} else {
				s.options.Log.WarnContext(ctx, "schedules do not run at present", "error", err)
			}
		}
		select {
		case <-tickTimer.C:
			runNext = s.startDueTicks
		case <-syncTimer.C:
			runNext = s.syncSchedules
		case <-s.wake:
			runNext = s.syncSchedules
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// syncSchedules stores the schedules of the apps whose generation has changed since they were stored. The default app
// has no record in the database: its generation is compared with the one in this process. Its Crons are always known,
// because its file was built before it came here.
func (s *Scheduler) syncSchedules(ctx context.Context) error {
	defaultApp, err := s.options.LoadConfigured(ctx, tenancy.DefaultID)
	switch {
	case errors.Is(err, agentsvc.CodeNotFound):
		s.defaultSchedules = AppSchedules{}
	case err != nil:
		return fmt.Errorf("read the schedules of the app %s: %w", tenancy.DefaultName, err)
	case defaultApp.Generation != s.defaultSchedules.Generation:
		if err := s.table.saveSchedules(ctx, tenancy.DefaultID, defaultApp.Generation, defaultApp.Crons); err != nil {
			return err
		}
		s.defaultSchedules = defaultApp
	}
	changed, err := s.table.findChangedApps(ctx, s.syncedTo)
	s.syncedTo = ""
	// There may be more changed apps than one query returns.
	if len(changed) == maxAppsPerQuery {
		s.syncedTo = changed[len(changed)-1].id
		s.wakeUp()
	}
	for _, app := range changed {
		err = errors.Join(err, s.syncApp(ctx, app))
	}
	return err
}

// syncApp stores the schedules of a changed app. A configuration that does not load changes nothing, and the app stays a
// changed one: another process, or this one later, may be able to load it.
func (s *Scheduler) syncApp(ctx context.Context, app changedApp) error {
	if u := s.unloaded[app.id]; u.generation == app.generation && (u.retryAt.IsZero() || time.Now().Before(u.retryAt)) {
		return nil
	}
	p, err := s.options.LoadConfigured(ctx, app.id)
	switch {
	case errors.Is(err, agentsvc.CodeNotFound):
		// The app was deleted after the query.
		return nil
	case err != nil:
		return err
	case p.Crons == nil:
		s.markUnloaded(app.id, unloadedApp{generation: p.Generation})
		return nil
	case (app.scheduled || len(p.Crons) > 0) && s.checkBuild(ctx, app.id, p.Generation) != nil:
		s.markUnloaded(app.id, unloadedApp{p.Generation, time.Now().Add(s.options.SyncInterval)})
		return nil
	}
	delete(s.unloaded, app.id)
	return s.table.saveSchedules(ctx, app.id, p.Generation, p.Crons)
}

// checkBuild is CheckBuild within TickInterval: a slow build does not delay the ticks of other apps.
func (s *Scheduler) checkBuild(ctx context.Context, app db.ID, generation int64) error {
	if s.options.CheckBuild == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.TickInterval)
	defer cancel()
	return s.options.CheckBuild(ctx, app, generation)
}

// markUnloaded makes a later synchronisation try the app again, whose stored schedules stay as they are meanwhile.
func (s *Scheduler) markUnloaded(app db.ID, u unloadedApp) {
	if len(s.unloaded) >= maxUnloaded {
		clear(s.unloaded)
	}
	s.unloaded[app] = u
}

// maxUnloaded bounds Scheduler.unloaded. A full map is emptied: its apps are tried again.
const maxUnloaded = 10_000

// startDueTicks starts the ticks that are due, each in a goroutine, as far as the bounds allow. It does not wait for
// them.
func (s *Scheduler) startDueTicks(ctx context.Context) error {
	due, err := s.table.findDueTicks(ctx)
	if err != nil {
		return err
	}
	for _, d := range due {
		if defaultApp := s.defaultSchedules.Crons[d.Agent]; d.Tenant == tenancy.DefaultID && (defaultApp == nil || defaultApp.String() != d.Spec) {
			// The default app of another process has this schedule; that process starts it.
			continue
		}
		if !s.beginStart(d) {
			continue
		}
		select {
		case s.startPermits <- struct{}{}:
		case <-time.After(s.options.TickInterval):
			s.endStart(d)
			// The remaining ticks stay due.
			return nil
		}
		s.starts.Go(func() {
			if err := s.startTick(ctx, d); err != nil && ctx.Err() == nil {
				s.options.Log.WarnContext(ctx, "a tick could not be started and is tried again", "tenant", d.Tenant, "agent", d.Agent, "error", err)
			}
			<-s.startPermits
			s.endStart(d)
		})
	}
	return nil
}

// beginStart registers the start of a tick. It returns false if the app already has maxTicksPerApp, or if this process is
// starting the agent: a tick that is being claimed is still found as due.
func (s *Scheduler) beginStart(d DueTick) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	agents := s.starting[d.Tenant]
	if agents[d.Agent] || len(agents) == maxTicksPerApp {
		return false
	}
	if agents == nil {
		agents = map[string]bool{}
		s.starting[d.Tenant] = agents
	}
	agents[d.Agent] = true
	return true
}

// endStart must follow a beginStart that returned true.
func (s *Scheduler) endStart(d DueTick) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.starting[d.Tenant], d.Agent); len(s.starting[d.Tenant]) == 0 {
		delete(s.starting, d.Tenant)
	}
}

// startTick starts one agent unless another process has claimed the tick. Of several missed ticks only the last one is
// started.
func (s *Scheduler) startTick(ctx context.Context, d DueTick) error {
	cron, err := ParseCronSpec(d.Spec)
	if err != nil {
		return err
	}
	if mine, err := s.table.claimTick(ctx, d, s.options.ClaimTTL); err != nil || !mine {
		return err
	}
	// The start must end before the claim does: otherwise another process could store the outcome at the same time.
	ctx, cancel := context.WithTimeout(ctx, s.options.ClaimTTL*2/3)
	defer cancel()
	t := Tick{d.Tenant, d.Agent, d.Spec, cron.LatestTick(d.At, d.Now)}
	o := Outcome{At: t.At}
	o.Task, err = s.options.StartTick(ctx, t)
	refused := errors.Is(err, ErrTickRefused)
	switch {
	case errors.Is(err, ErrNoSchedule), errors.Is(err, agentsvc.CodeNotFound), errors.Is(err, tenancy.ErrSuspended):
		// The next synchronization will delete or replace the schedule.
		return nil
	case refused:
		o.Error = err.Error()
		s.options.Log.WarnContext(ctx, "a schedule may not start its agent", "tenant", t.Tenant, "agent", t.Agent, "scheduled_at", t.At, "error", err)
	case err != nil:
		s.options.Log.WarnContext(ctx, "a schedule could not start its agent and tries again", "tenant", t.Tenant, "agent", t.Agent, "scheduled_at", t.At, "error", err)
		// The claim stays and expires, which is the pause before the next attempt.
		return nil
	}
	return s.table.finishTick(ctx, d, o, cron.Next(d.Now))
}
