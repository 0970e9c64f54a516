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
	sweepEvery = 5 * time.Minute
	sweepTime  = 5 * time.Minute
	dutyTime   = sweepTime + 2*sweepEvery
)

// sweeper deletes what apps keep no longer, and measures what they keep. Of all processes on a database one does so at a time.
type sweeper struct {
	h    *house
	duty *store.Duty
	apps map[db.ID]*keeping // of which something is known; those that are gone are forgotten
}

// keeping is how long an app keeps what is finished.
type keeping struct {
	generation int64
	retention  store.Retention
	own        bool      // its sessions are in a database of its own
	next       time.Time // when it is due
	seen       bool      // in the round under way
	weight     weight
}

func newSweeper(h *house) *sweeper {
	return &sweeper{h: h, duty: store.NewDuty(h.db, "sweep", agentsvc.NewID()), apps: map[db.ID]*keeping{}}
}

// run sweeps until ctx ends.
func (s *sweeper) run(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			left, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = s.duty.Leave(left) // else it is over by itself
			return ctx.Err()
		case <-tick.C:
		}
		if err := s.round(ctx); err != nil && ctx.Err() == nil {
			s.h.log.Warn("what apps keep no longer could not be deleted", "error", err)
		}
	}
}

// round looks at every app once, if this process has the duty, and sweeps those that are due.
func (s *sweeper) round(ctx context.Context) error {
	if mine, err := s.duty.Take(ctx, dutyTime); err != nil || !mine {
		return err
	}
	for _, k := range s.apps {
		k.seen = false
	}
	q := tenancy.Query{Size: tenancy.MaxPageSize}
	for {
		page, err := s.h.apps.List(ctx, q)
		if err != nil {
			return err
		}
		for _, a := range page.Apps {
			if err := s.look(ctx, a); err != nil {
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

// look sweeps an app that is due.
func (s *sweeper) look(ctx context.Context, a tenancy.App) error {
	if a.Status == tenancy.Deleting {
		return nil
	}
	k := s.apps[a.ID]
	if k == nil || k.generation != a.Generation {
		next := &keeping{generation: a.Generation}
		if k != nil {
			next.weight = k.weight
		}
		k = next
		s.apps[a.ID] = k
		if err := s.h.keeps(ctx, a, k); err != nil {
			return err
		}
	}
	k.seen = true
	if err := s.weigh(ctx, a, &k.weight); err != nil {
		s.h.log.Warn("what an app stores could not be measured", "app", a.Name, "error", err)
	}
	if k.retention == (store.Retention{}) || time.Now().Before(k.next) {
		return nil
	}
	if mine, err := s.duty.Take(ctx, dutyTime); err != nil || !mine {
		return err
	}
	k.next = time.Now().Add(pace(k.retention))
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	n, err := s.sweep(ctx, a, k)
	if n != (store.Swept{}) {
		s.h.log.Info("deleted what an app keeps no longer", "app", a.Name, "tasks", n.Tasks, "events", n.Events, "sessions", n.Sessions)
		if s.h.meters != nil {
			s.h.meters.sweep(n)
		}
	}
	return err
}

func (s *sweeper) sweep(ctx context.Context, a tenancy.App, k *keeping) (store.Swept, error) {
	n, err := store.New(s.h.db, a.ID).Sweep(ctx, k.retention)
	if err != nil || !k.own || k.retention.Sessions == 0 || a.Status != tenancy.Active {
		return n, err
	}
	house, _, release, err := s.h.live.Acquire(ctx, a.ID)
	if err != nil {
		return n, fmt.Errorf("load the app: %w", err)
	}
	defer release()
	own, err := house.Sweep(ctx, store.Retention{Sessions: k.retention.Sessions})
	n.Sessions += own.Sessions
	return n, err
}

// pace is the time between two sweeps of an app: what is to go after a month need not go to the minute.
func pace(r store.Retention) time.Duration {
	shortest := time.Duration(1<<63 - 1)
	for _, d := range []time.Duration{r.Tasks, r.Events, r.Sessions} {
		if d > 0 {
			shortest = min(shortest, d)
		}
	}
	return min(max(shortest/20, time.Second), 6*time.Hour)
}

// keeps reads into k what an app's configuration says of it, and where that says nothing its plan.
func (h *house) keeps(ctx context.Context, a tenancy.App, k *keeping) error {
	plan, _ := h.shared.Billing.Plan(a.Plan)
	k.retention = store.Retention(plan.Retention)
	cfg := h.own.cfg.Load()
	if a.ID != tenancy.DefaultID {
		s, err := h.apps.Snapshot(ctx, a.ID, 0)
		if err != nil {
			return err
		}
		if cfg, err = config.Parse(s.Config, config.Options{Lookup: s.Secret, Tenant: true, Grants: s.App.Grants, Lend: environ}); err != nil {
			return err
		}
	}
	r := cfg.Storage.Retention
	k.retention, k.own = store.Retention{
		Tasks: cmp.Or(r.Tasks, k.retention.Tasks), Events: cmp.Or(r.Events, k.retention.Events), Sessions: cmp.Or(r.Sessions, k.retention.Sessions),
	}, cfg.Storage.Sessions.Database != ""
	return nil
}
