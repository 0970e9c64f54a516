package main

import (
	"context"
	"time"

	"stoa/agentsvc/store/quota"
	"stoa/tenancy"
)

// storageSize is the last measurement of what an app stores. Only the goroutine of sweeper.run uses it.
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

// sampleStorage records as usage what an app stores, once in each hour. Only the process with the sweep lease does
// so; the lease is renewed here because measuring many apps takes longer than one lease.
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
	// Too early for another measurement: the last size is recorded for this hour.
	if began := time.Now(); !began.Before(w.nextAt) {
		n, err := quota.StoredBytes(ctx, s.h.db, a.ID)
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
