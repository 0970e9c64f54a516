package task_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestManyBlockingCalls: a tenant has 700 blocking calls under way whose runs do not end. Half of the places for live runs are
// free all the while; when the callers are gone the tenant has places again, and no run of its queue goes before others.
func TestManyBlockingCalls(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		const calls, share = 700, 256
		ends := make(chan struct{})
		p := start(t, d, func(w *work) error {
			select {
			case <-ends:
			case <-w.Done():
				return context.Cause(w)
			}
			return w.end(agentsvc.Completed, "done")
		})
		t.Cleanup(func() { close(ends) })
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		live := 0
		var callers sync.WaitGroup
		for range calls {
			got, evs, err := p.Call(ctx, send("slow"))
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
		if n := free(p, "quiet"); live != share || n != share/2 {
			t.Errorf("%d of the calls are live, want %d; another tenant may have %d places, want %d", live, share, n, share/2)
		}
		p.claims(t)
		leave()
		callers.Wait()
		eventually(t, "most places are free, and no run in the queue is awaited", func() bool {
			return free(p, "acme") > share/2 && awaited(t, d) == 0 // some of the queue were handed over when the first callers left
		})
		if n := p.pool.Inflight(); n < share {
			t.Errorf("%d runs are at work, want the %d whose callers are gone to go on", n, share)
		}
	})
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); !holds(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// free returns how many places for live runs a tenant may have at present.
func free(p *process, tenant db.ID) (n int) {
	for _, ok := p.pool.Reserve(tenant); ok; _, ok = p.pool.Reserve(tenant) {
		n++
	}
	for range n {
		p.pool.Release(tenant)
	}
	return n
}

// awaited counts the runs in the queue that count as waited for.
func awaited(t *testing.T, d *db.DB) (n int) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, "SELECT COUNT(*) FROM run WHERE state = 'pending' AND priority = $1", int64(store.Awaited))
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return n
}
