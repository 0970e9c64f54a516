package task

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestSharing: a caller gets a result that was read after its call began, and callers that wait at the same time
// share one read.
func TestSharing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s sharedReads[string, int64]
		var now, reads atomic.Int64
		read := func(context.Context) (int64, error) {
			reads.Add(1)
			seen := now.Load()
			time.Sleep(10 * time.Millisecond)
			return seen, nil
		}
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				requested := now.Add(1)
				if got, err := s.readShared(t.Context(), "k", read); err != nil || got < requested {
					t.Errorf("asked at %d, got the state at %d (%v)", requested, got, err)
				}
			})
		}
		wg.Wait()
		if n := reads.Load(); n > 12 {
			t.Errorf("100 callers of whom ten come during a read were answered by %d reads", n)
		}
		if len(s.current) > 0 {
			t.Errorf("%d readings are left", len(s.current))
		}
	})
}

// TestSharingWithoutItsReader: if the caller that was to read leaves or fails, those who wait for it read for
// themselves.
func TestSharingWithoutItsReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s sharedReads[string, int]
		wrong := errors.New("wrong")
		slow := func(result int, err error) func(context.Context) (int, error) {
			return func(context.Context) (int, error) { time.Sleep(time.Second); return result, err }
		}
		var wg sync.WaitGroup
		ask := func(ctx context.Context, want int, wantErr error, read func(context.Context) (int, error)) {
			wg.Go(func() {
				if got, err := s.readShared(ctx, "k", read); got != want || !errors.Is(err, wantErr) {
					t.Errorf("got %d, %v, want %d, %v", got, err, want, wantErr)
				}
			})
			synctest.Wait()
		}
		leaving, finish := context.WithCancel(t.Context())
		ask(t.Context(), 1, nil, slow(1, nil))
		ask(leaving, 0, context.Canceled, slow(2, nil)) // performs the next read
		ask(t.Context(), 3, nil, slow(3, nil))          // waits for that read
		finish()
		synctest.Wait()
		ask(t.Context(), 0, wrong, slow(0, wrong)) // performs the next read now
		ask(t.Context(), 5, nil, slow(5, nil))
		gone, cancel := context.WithCancel(t.Context())
		ask(gone, 0, context.Canceled, slow(6, nil))
		cancel()
		wg.Wait()
		if len(s.current) > 0 {
			t.Errorf("%d readings are left", len(s.current))
		}
		ask(t.Context(), 7, nil, slow(7, nil))
		wg.Wait()
	})
}
