package queue

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// TestDepth: as many runs are admitted as may wait, with an occasional count.
func TestDepth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var waiting, counts atomic.Int64
		d := &queueDepths{apps: map[db.ID]*tenantDepth{}, count: func(_ context.Context, _ db.ID, limit int64) (int64, error) {
			counts.Add(1)
			time.Sleep(time.Millisecond)
			return min(waiting.Load(), limit), nil
		}}
		try := func(written bool) error {
			done, err := d.acquireEntry(t.Context(), "a", 100)
			if err == nil {
				if written {
					waiting.Add(1)
				}
				done(written)
			}
			return err
		}
		var in, out atomic.Int64
		var wg sync.WaitGroup
		for range 300 {
			wg.Go(func() {
				switch err := try(true); {
				case err == nil:
					in.Add(1)
				case errors.Is(err, agentsvc.CodeExhausted):
					out.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if in.Load() != 100 || out.Load() != 200 || counts.Load() > 3 {
			t.Errorf("%d in, %d out, counted %d times", in.Load(), out.Load(), counts.Load())
		}
		waiting.Store(98) // others have used two
		time.Sleep(atLimitTTL)
		for i, want := range []bool{true, true, false} {
			if err := try(true); (err == nil) != want {
				t.Errorf("place %d of two: %v", i+1, err)
			}
		}
		waiting.Store(50)
		time.Sleep(2 * belowLimitTTL)
		for range 60 { // a run that was not written uses no capacity
			if err := try(false); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := d.acquireEntry(t.Context(), "b", 1); err == nil {
			t.Error("another app has the count of the first")
		}
	})
}

// TestDepthSlow: while the database counts slowly, runs are admitted as far as there is capacity, and callers that
// came before a count share it.
func TestDepthSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var counts atomic.Int64
		d := &queueDepths{apps: map[db.ID]*tenantDepth{}, count: func(context.Context, db.ID, int64) (int64, error) {
			counts.Add(1)
			time.Sleep(3 * belowLimitTTL)
			return 7, nil
		}}
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if _, err := d.acquireEntry(t.Context(), "a", 1000); err != nil {
					t.Errorf("refused with seven that wait: %v", err)
				}
			})
		}
		wg.Wait()
		if n := counts.Load(); n > 2 {
			t.Errorf("counted %d times for 100 callers at once", n)
		}
	})
}

// TestDepthUnknown: a run is not admitted if the count fails.
func TestDepthUnknown(t *testing.T) {
	t.Parallel()
	broken := errors.New("no database")
	d := &queueDepths{apps: map[db.ID]*tenantDepth{}, count: func(context.Context, db.ID, int64) (int64, error) { return 0, broken }}
	if _, err := d.acquireEntry(t.Context(), "a", 100); !errors.Is(err, broken) {
		t.Error(err)
	}
}
