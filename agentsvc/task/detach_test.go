package task_test

import (
	"context"
	"sync"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestManyBlockingCalls: a tenant has 700 blocking calls whose runs do not end. Half of the live slots stay free
// meanwhile. When the callers disconnect, the tenant gets slots again and none of its queued runs keeps its priority.
func TestManyBlockingCalls(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		const calls, share = 700, 256
		ends := make(chan struct{})
		p := startProcess(t, d, func(w *runWork) error {
			select {
			case <-ends:
			case <-w.Done():
				return context.Cause(w)
			}
			return w.recordEnd(agentsvc.Completed, "done")
		})
		t.Cleanup(func() { close(ends) })
		ctx, finish := context.WithCancel(t.Context())
		defer finish()
		live := 0
		var callers sync.WaitGroup
		for range calls {
			got, evs, err := p.Messages.SubmitAndFollow(ctx, newSubmission("slow"))
			if err != nil {
				t.Fatal(err)
			}
			if got.Status.State == agentsvc.Working {
				live++
			}
			callers.Go(func() {
				for _, err := range evs {
					if err != nil {
						return
					}
				}
			})
		}
		if n := countFreeSlots(p, "quiet"); live != share || n != share/2 {
			t.Errorf("%d of the calls are live, want %d; another tenant may have %d places, want %d", live, share, n, share/2)
		}
		p.startClaiming(t)
		finish()
		callers.Wait()
		dbtest.WaitUntil(t, "most places are free, and no run in the queue is awaited", func() bool {
			return countFreeSlots(p, "acme") > share/2 && countAwaited(t, d) == 0 // some queued runs got live slots when the first callers disconnected
		})
		if n := p.pool.Inflight(); n < share {
			t.Errorf("%d runs are at work, want the %d whose callers are gone to go on", n, share)
		}
	})
}

// countFreeSlots returns how many live slots a tenant could acquire now.
func countFreeSlots(p *process, tenant db.ID) (n int) {
	for _, ok := p.pool.AcquireSlot(tenant); ok; _, ok = p.pool.AcquireSlot(tenant) {
		n++
	}
	for range n {
		p.pool.ReleaseSlot(tenant)
	}
	return n
}

// countAwaited returns the number of queued runs with the priority of awaited ones.
func countAwaited(t *testing.T, d *db.DB) (n int) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, "SELECT COUNT(*) FROM run WHERE state = 'pending' AND priority = $1", int64(store.PriorityAwaited))
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return n
}
