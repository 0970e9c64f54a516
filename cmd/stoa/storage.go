package main

import (
	"context"
	"time"

	"stoa/agentsvc/store"
	"stoa/tenancy"
)

// storageSize is how much an app stores, as it was measured last.
type storageSize struct {
	bytes        int64
	known        bool
	nextAt       time.Time // to be measured again
	recordedHour time.Time // the hour in which it was
}

// measureShare is the part of the time that an app may be measured: what takes a minute is done every hour and a half or so, and
// the hours between count as the one before.
const measureShare = 100

// sampleStorage notes what an app stores, once in each hour.
func (s *sweeper) sampleStorage(ctx context.Context, a tenancy.App, w *storageSize) error {
	hour := time.Now().Truncate(time.Hour)
	if !w.recordedHour.Before(hour) {
		return nil
	}
	if mine, err := s.lease.Acquire(ctx, sweepLeaseTime); err != nil || !mine {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	if began := time.Now(); !began.Before(w.nextAt) {
		n, err := store.New(s.h.db, a.ID).StoredBytes(ctx)
		w.nextAt = began.Add(measureShare * time.Since(began))
		if err != nil {
			return err
		}
		w.bytes, w.known = n, true
	}
	if !w.known {
		return nil
	}
	if err := s.h.deps.Billing.NewMeter(a.ID, a.Plan).SampleStorage(ctx, w.bytes); err != nil {
		return err
	}
	w.recordedHour = hour
	return nil
}
