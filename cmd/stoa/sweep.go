package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/store"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// Timing of the sweep: how often all apps are checked, how long the sweep of one app may take before the next one's
// turn, and how long the lease outlives its last renewal. The lease is longer than the longest sweep plus two rounds,
// so that it does not expire between renewals.
const (
	sweepInterval  = 5 * time.Minute
	sweepTimeout   = 5 * time.Minute
	sweepLeaseTime = sweepTimeout + 2*sweepInterval
)

// sweeper deletes what retention no longer keeps and measures what apps store. Of all processes on a database the one
// with the lease does so. Its fields are used by the goroutine of run only.
type sweeper struct {
	h *server
	// lease is held by one process at a time, by the database's clock. Another process takes it over when it expires.
	lease *store.LeaderLease
	// apps are the apps that the last round has seen; others are forgotten.
	apps map[db.ID]*retentionState
}

// retentionState is what the sweeper knows about one app.
type retentionState struct {
	// generation is the app's when its retention was read; with another one it is read again.
	generation int64
	// retention is that of the app's configuration, else that of its plan. Its zero value keeps everything.
	retention store.Retention
	// externalSessions means that the app's sessions are in a database of its own.
	externalSessions bool
	nextAt           time.Time // earliest time of the next sweep
	// seen marks the apps of the round in progress; the others are forgotten at its end.
	seen    bool
	storage storageSize
}

// newSweeper returns the sweeper of h with a lease holder's id that is unique to this process.
func newSweeper(h *server) *sweeper {
	return &sweeper{h: h, lease: store.NewLeaderLease(h.db, "sweep", agentsvc.NewID()), apps: map[db.ID]*retentionState{}}
}

// run sweeps every sweepInterval until ctx ends, then releases the lease so that another process need not wait for
// its end.
func (s *sweeper) run(ctx context.Context) error {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			left, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = s.lease.Release(left) // on failure the lease expires by itself
			return ctx.Err()
		case <-tick.C:
		}
		if err := s.sweepDueApps(ctx); err != nil && ctx.Err() == nil {
			s.h.log.Warn("expired data of apps could not be deleted", "error", err)
		}
	}
}

// sweepDueApps visits every app once and sweeps those that are due. It does nothing in a process without the lease.
// The failure of one app is logged and does not stop the others.
func (s *sweeper) sweepDueApps(ctx context.Context) error {
	// Acquire also renews the lease of this process.
	if mine, err := s.lease.Acquire(ctx, sweepLeaseTime); err != nil || !mine {
		return err
	}
	for _, k := range s.apps {
		k.seen = false
	}
	q := tenancy.AppQuery{Size: tenancy.MaxPageSize}
	for {
		page, err := s.h.apps.ListApps(ctx, q)
		if err != nil {
			return err
		}
		for _, a := range page.Apps {
			if err := s.sweepIfDue(ctx, a); err != nil {
				s.h.log.Warn("expired data of an app could not be deleted", "app", a.Name, "error", err)
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

// sweepIfDue measures what an app stores and deletes what has expired, if it is due. An app's retention is read again
// only when its generation has changed. It renews the lease before the deletion and stops if another process has it.
func (s *sweeper) sweepIfDue(ctx context.Context, a tenancy.App) error {
	if a.Status == tenancy.Deleting {
		return nil
	}
	k := s.apps[a.ID]
	// Reading retention parses the app's configuration, so that it is done once for each generation.
	if k == nil || k.generation != a.Generation {
		next := &retentionState{generation: a.Generation}
		if k != nil {
			next.storage = k.storage
		}
		k = next
		s.apps[a.ID] = k
		if err := s.h.loadRetention(ctx, a, k); err != nil {
			return err
		}
	}
	k.seen = true
	if err := s.sampleStorage(ctx, a, &k.storage); err != nil {
		s.h.log.Warn("the stored bytes of an app could not be measured", "app", a.Name, "error", err)
	}
	if k.retention == (store.Retention{}) || time.Now().Before(k.nextAt) {
		return nil
	}
	if mine, err := s.lease.Acquire(ctx, sweepLeaseTime); err != nil || !mine {
		return err
	}
	// Set before the deletion: a sweep that fails is not repeated in every round.
	k.nextAt = time.Now().Add(sweepPeriod(k.retention))
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	n, err := s.deleteExpired(ctx, a, k)
	if n != (store.SweepCounts{}) {
		s.h.log.Info("deleted expired data of an app", "app", a.Name, "tasks", n.Tasks, "events", n.Events, "sessions", n.Sessions)
		if s.h.metrics != nil {
			s.h.metrics.recordSweep(n)
		}
	}
	return err
}

// deleteExpired deletes what has expired in the platform's database, and for an active app with sessions in its own
// database also there. That needs the app's runtime, because the address and the credentials are in its
// configuration.
func (s *sweeper) deleteExpired(ctx context.Context, a tenancy.App, k *retentionState) (store.SweepCounts, error) {
	n, err := store.New(s.h.db, a.ID).SweepExpired(ctx, k.retention)
	if err != nil || !k.externalSessions || k.retention.Sessions == 0 || a.Status != tenancy.Active {
		return n, err
	}
	// The app's own database is opened by its runtime.
	deps, _, release, err := s.h.runtimes.Acquire(ctx, a.ID)
	if err != nil {
		return n, fmt.Errorf("load the app: %w", err)
	}
	defer release()
	specific, err := deps.SweepExpired(ctx, store.Retention{Sessions: k.retention.Sessions})
	n.Sessions += specific.Sessions
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

// loadRetention reads into k the retention of an app: from its configuration, and what that leaves at zero from its
// plan.
func (h *server) loadRetention(ctx context.Context, a tenancy.App, k *retentionState) error {
	plan, _ := h.deps.Billing.CachedPlan(a.Plan)
	k.retention = store.Retention(plan.Retention)
	// The default app's configuration is the file's, which no snapshot contains.
	cfg := h.defaultApp.cfg.Load()
	if a.ID != tenancy.DefaultID {
		s, err := h.apps.LoadSnapshot(ctx, a.ID, 0)
		if err != nil {
			return err
		}
		if cfg, err = config.Parse(s.Config, config.Options{Lookup: s.Secret, Tenant: true, Grants: s.App.Grants, OperatorKey: lookupEnv}); err != nil {
			return err
		}
	}
	r := cfg.Storage.Retention
	k.retention, k.externalSessions = store.Retention{
		Tasks: cmp.Or(r.Tasks, k.retention.Tasks), Events: cmp.Or(r.Events, k.retention.Events), Sessions: cmp.Or(r.Sessions, k.retention.Sessions),
	}, cfg.Storage.Sessions.Database != ""
	return nil
}
