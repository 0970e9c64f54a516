package server

import (
	"context"
	"log/slog"
	"time"

	"stoa/agentsvc/store/leader"
	"stoa/agentsvc/store/quota"
	"stoa/billing"
	"stoa/billing/usage"
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
	lease   *leader.Lease
	// sizes are of the apps that the last round has seen; others are forgotten.
	sizes map[db.ID]*usage.StorageSampler
}

// newStorageSampler returns the sampler of a process.
func newStorageSampler(process string, d *db.DB, apps *tenancy.Service, b *billing.Service, log *slog.Logger) *storageSampler {
	return &storageSampler{db: d, apps: apps, billing: b, log: log, lease: leader.New(d, "storage", process), sizes: map[db.ID]*usage.StorageSampler{}}
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
	seen := map[db.ID]*usage.StorageSampler{}
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
				w = &usage.StorageSampler{}
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

// sampleStorage records as usage what an app stores, once in each hour. Only the process with the lease does so; the
// lease is renewed here because measuring many apps takes longer than one lease.
func (s *storageSampler) sampleStorage(ctx context.Context, a tenancy.App, sampler *usage.StorageSampler) error {
	if !sampler.IsDue(time.Now()) {
		return nil
	}
	if mine, err := s.lease.Acquire(ctx, sampleLeaseTime); err != nil || !mine {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	measure := func(ctx context.Context) (int64, error) { return quota.StoredBytes(ctx, s.db, a.ID) }
	return sampler.RecordSample(ctx, measure, s.billing.Usage.NewMeter(a.ID, a.Plan).SampleStorage)
}
