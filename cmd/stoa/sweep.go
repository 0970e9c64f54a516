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

// Of sweeping: how often apps are looked at, and how long one may take until the next has its turn.
const (
	sweepInterval  = 5 * time.Minute
	sweepTimeout   = 5 * time.Minute
	sweepLeaseTime = sweepTimeout + 2*sweepInterval
)

// sweeper deletes what apps keep no longer, and measures what they keep. Of all processes on a database one does so at a time.
type sweeper struct {
	h     *server
	lease *store.LeaderLease
	apps  map[db.ID]*retentionState // of which something is known; those that are gone are forgotten
}

// retentionState is how long an app keeps what is finished.
type retentionState struct {
	generation       int64
	retention        store.Retention
	externalSessions bool      // its sessions are in a database of its own
	nextAt           time.Time // when it is due
	seen             bool      // in the round under way
	storage          storageSize
}

func newSweeper(h *server) *sweeper {
	return &sweeper{h: h, lease: store.NewLeaderLease(h.db, "sweep", agentsvc.NewID()), apps: map[db.ID]*retentionState{}}
}

// run sweeps until ctx ends.
func (s *sweeper) run(ctx context.Context) error {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			left, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = s.lease.Release(left) // else it is over by itself
			return ctx.Err()
		case <-tick.C:
		}
		if err := s.sweepDueApps(ctx); err != nil && ctx.Err() == nil {
			s.h.log.Warn("what apps keep no longer could not be deleted", "error", err)
		}
	}
}

// sweepDueApps looks at every app once, if this process has the duty, and sweeps those that are due.
func (s *sweeper) sweepDueApps(ctx context.Context) error {
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
				s.h.log.Warn("what an app keeps no longer could not be deleted", "app", a.Name, "error", err)
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

// sweepIfDue sweeps an app that is due.
func (s *sweeper) sweepIfDue(ctx context.Context, a tenancy.App) error {
	if a.Status == tenancy.Deleting {
		return nil
	}
	k := s.apps[a.ID]
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
		s.h.log.Warn("what an app stores could not be measured", "app", a.Name, "error", err)
	}
	if k.retention == (store.Retention{}) || time.Now().Before(k.nextAt) {
		return nil
	}
	if mine, err := s.lease.Acquire(ctx, sweepLeaseTime); err != nil || !mine {
		return err
	}
	k.nextAt = time.Now().Add(sweepPeriod(k.retention))
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	n, err := s.deleteExpired(ctx, a, k)
	if n != (store.SweepCounts{}) {
		s.h.log.Info("deleted what an app keeps no longer", "app", a.Name, "tasks", n.Tasks, "events", n.Events, "sessions", n.Sessions)
		if s.h.metrics != nil {
			s.h.metrics.recordSweep(n)
		}
	}
	return err
}

func (s *sweeper) deleteExpired(ctx context.Context, a tenancy.App, k *retentionState) (store.SweepCounts, error) {
	n, err := store.New(s.h.db, a.ID).SweepExpired(ctx, k.retention)
	if err != nil || !k.externalSessions || k.retention.Sessions == 0 || a.Status != tenancy.Active {
		return n, err
	}
	deps, _, release, err := s.h.runtimes.Acquire(ctx, a.ID)
	if err != nil {
		return n, fmt.Errorf("load the app: %w", err)
	}
	defer release()
	specific, err := deps.SweepExpired(ctx, store.Retention{Sessions: k.retention.Sessions})
	n.Sessions += specific.Sessions
	return n, err
}

// sweepPeriod is the time between two sweeps of an app: what is to go after a month need not go to the minute.
func sweepPeriod(r store.Retention) time.Duration {
	shortest := time.Duration(1<<63 - 1)
	for _, d := range []time.Duration{r.Tasks, r.Events, r.Sessions} {
		if d > 0 {
			shortest = min(shortest, d)
		}
	}
	return min(max(shortest/20, time.Second), 6*time.Hour)
}

// loadRetention reads into k what an app's configuration says of it, and where that says nothing its plan.
func (h *server) loadRetention(ctx context.Context, a tenancy.App, k *retentionState) error {
	plan, _ := h.deps.Billing.CachedPlan(a.Plan)
	k.retention = store.Retention(plan.Retention)
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
