package usage

import (
	"context"
	"time"
)

// measureShare limits the time spent on measuring an app to 1/measureShare of all time. A measurement reads all of
// the app's rows: one that takes a minute is repeated after 100 minutes, and the hours between are recorded with the
// last size.
const measureShare = 100

// StorageSampler decides when the storage of one app is measured and recorded: it is recorded once in each hour. The
// zero value is ready for use, by one goroutine.
type StorageSampler struct {
	bytes    int64 // the last measurement
	measured bool  // bytes has been measured
	// measureAt is the earliest time of the next measurement.
	measureAt time.Time
	// recordedHour is the last hour for which a sample was recorded.
	recordedHour time.Time
}

// IsDue reports whether the hour of now has no sample of this sampler yet.
func (s *StorageSampler) IsDue(now time.Time) bool {
	return s.recordedHour.Before(now.Truncate(time.Hour))
}

// RecordSample calls record, which is [Meter.SampleStorage], with the bytes that are stored at present. It calls measure
// for them, or uses the last ones while it is too early for another measurement. After an error the sampler stays due.
func (s *StorageSampler) RecordSample(ctx context.Context, measure func(context.Context) (int64, error), record func(context.Context, int64) error) error {
	began := time.Now()
	if !began.Before(s.measureAt) {
		n, err := measure(ctx)
		s.measureAt = began.Add(measureShare * time.Since(began))
		if err != nil {
			return err
		}
		s.bytes, s.measured = n, true
	}
	if !s.measured {
		return nil
	}
	if err := record(ctx, s.bytes); err != nil {
		return err
	}
	s.recordedHour = began.Truncate(time.Hour)
	return nil
}
