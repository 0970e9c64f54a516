package processor_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"stoa/agentsvc/processor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestHalfOfProcessors checks that half of the processors, at least one, can have permits at the same time.
func TestHalfOfProcessors(t *testing.T) {
	t.Parallel()
	for processors, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 16: 8} {
		synctest.Test(t, func(t *testing.T) {
			semaphore, got := processor.NewSemaphore(processors), make(chan error, 1)
			for range want {
				if err := semaphore.Acquire(t.Context(), ""); err != nil {
					t.Fatal(err)
				}
			}
			go func() { got <- semaphore.Acquire(t.Context(), "") }()
			synctest.Wait()
			if len(got) != 0 {
				t.Errorf("%d processors: more than %d turns at a time", processors, want)
			}
			semaphore.Release()
			if err := <-got; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFairBetweenApps checks that apps get permits in turn, however many computations each has.
func TestFairBetweenApps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		semaphore := processor.NewSemaphore(2)
		if err := semaphore.Acquire(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		var computing sync.WaitGroup
		var order []string // only the goroutine with the permit writes
		compute := func(app string, slices int) {
			computing.Go(func() {
				if err := semaphore.Acquire(t.Context(), app); err != nil {
					t.Error(err)
					return
				}
				for i := range slices {
					if order = append(order, app); i < slices-1 {
						if err := semaphore.Yield(t.Context(), app); err != nil {
							t.Error(err)
							return
						}
					}
				}
				semaphore.Release()
			})
			synctest.Wait()
		}
		for range 8 {
			compute("busy", 2)
		}
		compute("quiet", 4)
		semaphore.Release()
		computing.Wait()
		if len(order) != 8*2+4 {
			t.Fatalf("%d slices were computed, want 20: %v", len(order), order)
		}
		if diff := cmp.Diff([]string{"busy", "quiet", "busy", "quiet", "busy", "quiet", "busy", "quiet", "busy"}, order[:9]); diff != "" {
			t.Errorf("the first slices (-want +got):\n%s", diff)
		}
	})
}

// TestWaitEnds checks that a waiting goroutine returns when its context ends, and that no permit is lost.
func TestWaitEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		semaphore, got := processor.NewSemaphore(2), make(chan error, 3)
		if err := semaphore.Acquire(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			go func() { got <- semaphore.Acquire(ctx, "") }()
		}
		go func() { got <- semaphore.Acquire(t.Context(), "") }()
		synctest.Wait()
		cancel()
		for range 2 {
			if err := <-got; !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want %v", err, context.Canceled)
			}
		}
		semaphore.Release()
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}
