package main

import (
	"context"
	"time"

	"stoa/agentsvc/store"
	"stoa/tenancy"
)

// weight is how much an app stores, as it was measured last.
type weight struct {
	bytes int64
	known bool
	due   time.Time // to be measured again
	noted time.Time // the hour in which it was
}

// measuring is the part of the time that an app may be measured: what takes a minute is done every hour and a half or so, and
// the hours between count as the one before.
const measuring = 100

// weigh notes what an app stores, once in each hour.
func (s *sweeper) weigh(ctx context.Context, a tenancy.App, w *weight) error {
	hour := time.Now().Truncate(time.Hour)
	if !w.noted.Before(hour) {
		return nil
	}
	if mine, err := s.duty.Take(ctx, dutyTime); err != nil || !mine {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	if began := time.Now(); !began.Before(w.due) {
		n, err := store.New(s.h.db, a.ID).Bytes(ctx)
		w.due = began.Add(measuring * time.Since(began))
		if err != nil {
			return err
		}
		w.bytes, w.known = n, true
	}
	if !w.known {
		return nil
	}
	if err := s.h.shared.Billing.Meter(a.ID, a.Plan).Sample(ctx, w.bytes); err != nil {
		return err
	}
	w.noted = hour
	return nil
}
