// Package retention deletes what the retention of apps no longer keeps: tasks, events and sessions. A [Sweeper] visits
// all apps of a database; of all processes on the database the one with a lease does so. The policy of an app is read
// once for each generation of its record.
package retention

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/leader"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// Policy is how long an app's data is kept. Its zero value keeps everything.
type Policy struct {
	store.Retention
	// ExternalSessions means that the app's sessions are in a database of its own.
	ExternalSessions bool
}

// ReadPolicy returns the policy of a configuration.
func ReadPolicy(cfg *config.Config) Policy {
	return Policy{Retention: store.Retention(cfg.Storage.Retention), ExternalSessions: cfg.Storage.Sessions.Database != ""}
}

// WithDefaults returns p with the values of plan where p has none.
func (p Policy) WithDefaults(plan store.Retention) Policy {
	p.Retention = store.Retention{Tasks: cmp.Or(p.Tasks, plan.Tasks), Events: cmp.Or(p.Events, plan.Events), Sessions: cmp.Or(p.Sessions, plan.Sessions)}
	return p
}

// Options are the options of a [Sweeper]. All but Process and OnSwept are required.
type Options struct {
	// Apps lists the apps to sweep.
	Apps *tenancy.Service
	// LoadPolicy returns the policy of an app's current configuration. It is called once for each generation of the
	// app's record.
	LoadPolicy func(ctx context.Context, a tenancy.App) (Policy, error)
	// SweepExternal deletes the expired sessions of an app whose database only its runtime can open.
	SweepExternal func(ctx context.Context, app db.ID, r store.Retention) (store.SweepCounts, error)
	// Process identifies this process as the holder of the lease; "" = a new id.
	Process string
	// OnSwept is called with what was deleted of one app; nil = it is not counted.
	OnSwept func(store.SweepCounts)
	Log     *slog.Logger
}

// Timing of the sweep: how often all apps are checked, how long the sweep of one app may take before the next one's
// turn, and how long the lease outlives its last renewal. The lease is longer than the longest sweep plus two rounds,
// so that it does not expire between renewals.
const (
	sweepInterval = 5 * time.Minute
	sweepTimeout  = 5 * time.Minute
	leaseTime     = sweepTimeout + 2*sweepInterval
)

// Sweeper deletes what retention no longer keeps. Its fields are used by the goroutine of Run only.
type Sweeper struct {
	db      *db.DB
	options Options
	// lease belongs to one process at a time, by the database's clock. Another process takes it over when it expires.
	lease *leader.Lease
	// apps are the apps that the last round has seen; others are forgotten.
	apps map[db.ID]*appState
}

// appState is what the sweeper knows about one app.
type appState struct {
	// generation is the app's when its policy was read; with another one it is read again.
	generation int64
	policy     Policy
	nextAt     time.Time // earliest time of the next sweep
	// seen marks the apps of the round in progress; the others are forgotten at its end.
	seen bool
}

// NewSweeper returns a sweeper of the apps in d.
func NewSweeper(d *db.DB, o Options) *Sweeper {
	return &Sweeper{db: d, options: o, lease: leader.New(d, "sweep", cmp.Or(o.Process, agentsvc.NewID())), apps: map[db.ID]*appState{}}
}

// Run sweeps every sweepInterval until ctx ends, then releases the lease so that another process need not wait for its
// end.
func (s *Sweeper) Run(ctx context.Context) error {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			left, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = s.Release(left) // on failure the lease expires by itself
			return ctx.Err()
		case <-tick.C:
		}
		if err := s.SweepDueApps(ctx); err != nil && ctx.Err() == nil {
			s.options.Log.Warn("expired data of apps could not be deleted", "error", err)
		}
	}
}

// Release releases the lease if this process has it.
func (s *Sweeper) Release(ctx context.Context) error { return s.lease.Release(ctx) }

// SweepDueApps visits every app once and sweeps those that are due. It does nothing in a process without the lease.
// The failure of one app is logged and does not stop the others.
func (s *Sweeper) SweepDueApps(ctx context.Context) error {
	// Acquire also renews the lease of this process.
	if mine, err := s.lease.Acquire(ctx, leaseTime); err != nil || !mine {
		return err
	}
	for _, k := range s.apps {
		k.seen = false
	}
	q := tenancy.AppQuery{Size: tenancy.MaxPageSize}
	for {
		page, err := s.options.Apps.ListApps(ctx, q)
		if err != nil {
			return err
		}
		for _, a := range page.Apps {
			if err := s.sweepIfDue(ctx, a); err != nil {
				s.options.Log.Warn("expired data of an app could not be deleted", "app", a.Name, "error", err)
			}
		}
		if q.Token = page.Next; q.Token == "" {
			break
		}
	}
	for id, k := range s.apps {
		if !k.seen {
			delete(s.apps, id)
		}
	}
	return nil
}

// sweepIfDue deletes what has expired of an app, if it is due. The app's policy is read again only when its generation
// has changed. Where it cannot be read, such as of a configuration that does not load, the former one stays in effect and
// the next round reads it again. It renews the lease before the deletion and stops if another process has it.
func (s *Sweeper) sweepIfDue(ctx context.Context, a tenancy.App) error {
	if a.Status == tenancy.Deleting {
		return nil
	}
	k := s.apps[a.ID]
	if k == nil || k.generation != a.Generation {
		policy, err := s.options.LoadPolicy(ctx, a)
		switch {
		case err == nil:
			k = &appState{generation: a.Generation, policy: policy}
			s.apps[a.ID] = k
		case k == nil:
			return err
		default:
			s.options.Log.Warn("the retention of an app stays as it was: its configuration does not load", "app", a.Name, "error", err)
		}
	}
	k.seen = true
	if k.policy.Retention == (store.Retention{}) || time.Now().Before(k.nextAt) {
		return nil
	}
	if mine, err := s.lease.Acquire(ctx, leaseTime); err != nil || !mine {
		return err
	}
	// Set before the deletion: a sweep that fails is not repeated in every round.
	k.nextAt = time.Now().Add(sweepPeriod(k.policy.Retention))
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	n, err := s.deleteExpired(ctx, a, k.policy)
	if n != (store.SweepCounts{}) {
		s.options.Log.Info("deleted expired data of an app", "app", a.Name, "tasks", n.Tasks, "events", n.Events, "sessions", n.Sessions)
		if s.options.OnSwept != nil {
			s.options.OnSwept(n)
		}
	}
	return err
}

// deleteExpired deletes what has expired in the platform's database, and for an active app with sessions in its own
// database also there.
func (s *Sweeper) deleteExpired(ctx context.Context, a tenancy.App, p Policy) (store.SweepCounts, error) {
	n, err := store.New(s.db, a.ID).Sweeper.SweepExpired(ctx, p.Retention)
	if err != nil || !p.ExternalSessions || p.Sessions == 0 || a.Status != tenancy.Active {
		return n, err
	}
	external, err := s.options.SweepExternal(ctx, a.ID, store.Retention{Sessions: p.Sessions})
	n.Sessions += external.Sessions
	return n, err
}

// sweepPeriod returns the time between two sweeps of an app: a twentieth of the shortest retention, at least a second
// and at most 6 hours. Data with a retention of a month need not be deleted to the minute.
func sweepPeriod(r store.Retention) time.Duration {
	shortest := time.Duration(1<<63 - 1)
	for _, d := range []time.Duration{r.Tasks, r.Events, r.Sessions} {
		if d > 0 {
			shortest = min(shortest, d)
		}
	}
	return min(max(shortest/20, time.Second), 6*time.Hour)
}
