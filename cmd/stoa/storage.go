package main

import (
	"context"
	"time"

	"stoa/agentsvc/store"
	"stoa/billing/usage"
	"stoa/tenancy"
)

// sampleStorage records as usage what an app stores, once in each hour. Only the process with the sweep lease does
// so; the lease is renewed here because measuring many apps takes longer than one lease.
func (s *sweeper) sampleStorage(ctx context.Context, a tenancy.App, sampler *usage.StorageSampler) error {
	if !sampler.IsDue(time.Now()) {
		return nil
	}
	if mine, err := s.lease.Acquire(ctx, sweepLeaseTime); err != nil || !mine {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	return sampler.RecordSample(ctx, store.New(s.h.db, a.ID).StoredBytes, s.h.deps.Billing.Usage.NewMeter(a.ID, a.Plan).SampleStorage)
}
