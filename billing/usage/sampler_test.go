package usage_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/billing/usage"
)

// TestStorageSampler checks that each hour is recorded once, that a slow measurement is used for several hours, and that
// an hour stays due while it is not recorded.
func TestStorageSampler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s usage.StorageSampler
		var recorded []int64
		var failure error
		takes, stored, measured := 2*time.Minute, int64(10), 0
		measure := func(context.Context) (int64, error) {
			measured++
			time.Sleep(takes)
			return stored, failure
		}
		record := func(_ context.Context, bytes int64) error {
			recorded = append(recorded, bytes)
			return nil
		}
		sample := func(after time.Duration, wantDue bool, wantErr error) {
			t.Helper()
			time.Sleep(after)
			if due := s.IsDue(time.Now()); due != wantDue {
				t.Errorf("due %v at %v, want %v", due, time.Now(), wantDue)
			}
			if err := s.RecordSample(t.Context(), measure, record); !errors.Is(err, wantErr) {
				t.Errorf("error %v, want %v", err, wantErr)
			}
		}
		sample(0, true, nil)
		if s.IsDue(time.Now()) {
			t.Error("an hour is due that has a sample")
		}
		stored = 20
		sample(time.Hour, true, nil) // too early for another measurement
		sample(time.Hour, true, nil)
		stored, takes = 30, 0
		sample(2*time.Hour, true, nil) // 200 minutes after the first
		failure = errors.New("no answer")
		sample(time.Hour, true, failure)
		failure = nil
		sample(0, true, nil)
		if want := []int64{10, 10, 10, 30, 30}; !cmp.Equal(want, recorded) || measured != 4 {
			t.Errorf("recorded %v after %d measurements, want %v after 4", recorded, measured, want)
		}
	})
}
