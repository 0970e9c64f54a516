package server

import (
	"context"
	"log/slog"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/billing"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// Timing of the sampling of storage: how often apps are looked at, how long the measurement of one app may take, and how
// long the lease outlives its last renewal.
const (
	sampleInterval  = 5 * time.Minute
	sampleTimeout   = 5 * time.Minute
	sampleLeaseTime = sampleTimeout + 2*sampleInterval
)

// storageSampler records as usage what apps store, once in each hour. Of all processes on a database the one with the
// lease does so. Its fields are used by the goroutine of run only.
type storageSampler struct {
	db      *db.DB
	apps    *tenancy.Service
	billing *billing.Service
	log     *slog.Logger
	lease   *store.LeaderLease
	// sizes are of the apps that the last round has seen; others are forgotten.
	sizes map[db.ID]*storageSize
}

// newStorageSampler returns a sampler with a lease holder's id that is unique to this process.
func newStorageSampler(d *db.DB, apps *tenancy.Service, b *billing.Service, log *slog.Logger) *storageSampler {
	return &storageSampler{db: d, apps: apps, billing: b, log: log, lease: store.NewLeaderLease(d, "storage", agentsvc.NewID()), sizes: map[db.ID]*storageSize{}}
}

// run samples every sampleInterval until ctx ends, then releases the lease.
func (s *storageSampler) run(ctx context.Context) error {
	tick := time.NewTicker(sampleInterval)
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
		if err := s.sampleApps(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("what apps store could not be measured", "error", err)
		}
	}
}

// sampleApps visits every app once. It does nothing in a process without the lease. The failure of one app is logged and
// does not stop the others.
func (s *storageSampler) sampleApps(ctx context.Context) error {
	if mine, err := s.lease.Acquire(ctx, sampleLeaseTime); err != nil || !mine {
		return err
	}
	seen := map[db.ID]*storageSize{}
	q := tenancy.AppQuery{Size: tenancy.MaxPageSize}
	for {
		page, err := s.apps.ListApps(ctx, q)
		if err != nil {
			return err
		}
		for _, a := range page.Apps {
			if a.Status == tenancy.Deleting {
				continue
			}
			w := s.sizes[a.ID]
			if w == nil {
				w = &storageSize{}
			}
			seen[a.ID] = w
			if err := s.sampleStorage(ctx, a, w); err != nil {
				s.log.Warn("the stored bytes of an app could not be measured", "app", a.Name, "error", err)
			}
		}
		if q.Token = page.Next; q.Token == "" {
			s.sizes = seen
			return nil
		}
	}
}

// storageSize is the last measurement of what an app stores. Only the goroutine of storageSampler.run uses it.
type storageSize struct {
	bytes        int64
	known        bool      // bytes has been measured
	nextAt       time.Time // earliest time of the next measurement
	recordedHour time.Time // the last hour for which a sample was recorded
}

// measureShare limits the time spent on measuring an app to 1/measureShare of all time. A measurement reads all of
// the app's rows: one that takes a minute is repeated after 100 minutes, and the hours between are recorded with the
// last size.
const measureShare = 100

// sampleStorage records as usage what an app stores, once in each hour. Only the process with the lease does so; the lease is renewed here because measuring many apps takes longer than one lease.
func (s *storageSampler) sampleStorage(ctx context.Context, a tenancy.App, w *storageSize) error {
	hour := time.Now().Truncate(time.Hour)
	if !w.recordedHour.Before(hour) {
		return nil
	}
	if mine, err := s.lease.Acquire(ctx, sampleLeaseTime); err != nil || !mine {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	// Too early for another measurement: the last size is recorded for this hour.
	if began := time.Now(); !began.Before(w.nextAt) {
		n, err := store.New(s.db, a.ID).StoredBytes(ctx)
		w.nextAt = began.Add(measureShare * time.Since(began))
		if err != nil {
			return err
		}
		w.bytes, w.known = n, true
	}
	if !w.known {
		return nil
	}
	if err := s.billing.Usage.NewMeter(a.ID, a.Plan).SampleStorage(ctx, w.bytes); err != nil {
		return err
	}
	w.recordedHour = hour
	return nil
}
