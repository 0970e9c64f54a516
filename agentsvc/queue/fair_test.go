package queue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// openBlockingPool opens a pool whose runs do not end before the test. Those that begin are sent to begun.
func (fix fixture) openBlockingPool(o queue.Options) (p *queue.Pool, begun chan store.Run) {
	fix.Helper()
	begun, finish := make(chan store.Run, 2000), make(chan struct{})
	p, _ = fix.openPool(o, func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
		begun <- run
		select {
		case <-finish:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return fix.forTenant(run.Tenant).finishRun(ctx, run, lease)
	})
	fix.Cleanup(func() { close(finish) }) // before the pool is drained
	return p, begun
}

// forTenant returns the fixture for another tenant.
func (fix fixture) forTenant(tenant db.ID) fixture {
	return fixture{fix.T, fix.d, store.New(fix.d, tenant)}
}

// queueRuns writes n pending runs of a tenant.
func (fix fixture) queueRuns(app db.ID, n int) {
	fix.Helper()
	for range n {
		fix.forTenant(app).acceptRunOf(app, "")
	}
}

// countByTenant returns how many of the next n runs that begin belong to each tenant.
func countByTenant(b fixture, begun <-chan store.Run, n int) map[db.ID]int {
	b.Helper()
	got := map[db.ID]int{}
	for range n {
		got[receiveValue(b, begun).Tenant]++
	}
	return got
}

// withWorkers runs f with one worker, which a tenant can then occupy alone, and with several.
func withWorkers(t *testing.T, f func(b fixture, workers int)) {
	t.Helper()
	for _, workers := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			forEachEngine(t, func(b fixture) { f(b, workers) })
		})
	}
}

// TestWorkerKeptFree: runs of one tenant that do not end occupy all workers and no more; a queued run of another
// tenant begins nevertheless, also with one worker.
func TestWorkerKeptFree(t *testing.T) {
	withWorkers(t, func(b fixture, workers int) {
		p, begun := b.openBlockingPool(queue.Options{Workers: workers})
		b.queueRuns("greedy", 3*workers)
		p.WakeClaimers()
		if diff := cmp.Diff(map[db.ID]int{"greedy": workers}, countByTenant(b, begun, workers)); diff != "" {
			b.Error(diff)
		}
		b.queueRuns("quiet", 1)
		p.WakeClaimers()
		if next := receiveValue(b, begun); next.Tenant != "quiet" {
			b.Errorf("a run of %s began", next.Tenant)
		}
		if n := p.Inflight(); n != workers+1 {
			b.Errorf("%d runs are at work, want %d", n, workers+1)
		}
	})
}

// TestCollusion: several tenants together occupy every worker with runs that do not end. Each tenant without a run
// still gets one, and no more while that executes.
func TestCollusion(t *testing.T) {
	withWorkers(t, func(b fixture, workers int) {
		p, begun := b.openBlockingPool(queue.Options{Workers: workers, LendAfter: 10 * time.Millisecond})
		apps := []db.ID{"one", "two", "three"}
		for _, app := range apps {
			b.queueRuns(app, 10)
		}
		p.WakeClaimers()
		first := countByTenant(b, begun, max(workers, len(apps)))
		for _, app := range apps {
			if first[app] == 0 {
				b.Errorf("nothing of %s began: %v", app, first)
			}
		}
		late := []db.ID{"quiet", "silent", "still"}
		for _, app := range late {
			b.queueRuns(app, 2)
		}
		p.WakeClaimers()
		if diff := cmp.Diff(map[db.ID]int{"quiet": 1, "silent": 1, "still": 1}, countByTenant(b, begun, len(late))); diff != "" {
			b.Error(diff)
		}
		for range 3 { // periodic checks, each of which could lend another slot
			p.WakeClaimers()
			select {
			case run := <-begun:
				b.Errorf("another run of %s began during its first", run.Tenant)
			case <-time.After(time.Second):
			}
		}
	})
}

// TestLiveShare: a tenant occupies at most as many live slots as it leaves free, so that another one finds a slot,
// however many tenants take all they may.
func TestLiveShare(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		p, _ := b.openBlockingPool(queue.Options{})
		reserve := func(app db.ID) (n int) {
			for _, ok := p.AcquireSlot(app); ok; _, ok = p.AcquireSlot(app) {
				n++
			}
			b.Cleanup(func() {
				for range n {
					p.ReleaseSlot(app)
				}
			})
			return n
		}
		got := map[db.ID]int{"one": reserve("one"), "two": reserve("two"), "three": reserve("three"), "quiet": reserve("quiet")}
		if diff := cmp.Diff(map[db.ID]int{"one": 256, "two": 128, "three": 64, "quiet": 32}, got); diff != "" {
			b.Error(diff)
		}
		loose, _ := b.openBlockingPool(queue.Options{MaxInflight: 8, AppInflight: 7})
		for n := range 8 {
			if _, ok := loose.AcquireSlot("one"); ok != (n < 7) {
				b.Errorf("place %d of the 7 that an app may have: %v", n+1, ok)
			}
		}
		for range 7 {
			loose.ReleaseSlot("one")
		}
	})
}

// TestDetach: a run whose caller has disconnected continues and frees its live slot; a queued one loses its priority.
func TestDetach(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		p, begun := b.openBlockingPool(queue.Options{MaxInflight: 8, Workers: 1})
		var live []store.Run
		for range 4 {
			live = append(live, b.startLiveRun(p))
			receiveValue(b, begun)
		}
		if _, ok := p.AcquireSlot("acme"); ok {
			b.Fatal("a fifth place of eight")
		}
		b.queueRuns("acme", 1)
		p.WakeClaimers()
		receiveValue(b, begun) // the worker
		waits := b.acceptRun("")
		b.markAwaited(waits)
		p.NotifyQueued(store.NewTurn{Run: waits, Priority: store.PriorityAwaited})
		p.DetachCaller("acme", waits.Task)
		b.waitUntil("a run in the queue whose caller is gone goes before no others", func() bool { return b.readPriority(waits) == store.PriorityNormal })
		for _, run := range live {
			p.DetachCaller("acme", run.Task)
		}
		for n := range 4 {
			// The claim loop may have a slot for a moment, to look for an awaited run.
			b.waitUntil(fmt.Sprintf("more than %d places are free, since four callers are gone", n), func() bool {
				_, ok := p.AcquireSlot("acme")
				return ok
			})
			b.Cleanup(func() { p.ReleaseSlot("acme") })
		}
		for _, run := range live {
			if got := b.readRow(run); got != (runRow{store.Running, 1}) {
				b.Errorf("a run whose caller is gone is %+v", got)
			}
		}
		select {
		case run := <-begun:
			b.Errorf("a run of the queue began: %s", run.Task)
		default:
		}
	})
}

// markAwaited gives a queued run the priority of an awaited one.
func (fix fixture) markAwaited(run store.Run) {
	fix.Helper()
	var batch db.Batch
	batch.Exec(nil, "UPDATE run SET priority = 0 WHERE tenant = $1 AND task = $2", string(run.Tenant), string(run.Task))
	if err := fix.d.Platform().Do(fix.Context(), &batch); err != nil {
		fix.Fatal(err)
	}
}

func (fix fixture) readPriority(run store.Run) (p store.Priority) {
	fix.Helper()
	var batch db.Batch
	batch.Query(func(s db.Row) error { return s.Scan((*int64)(&p)) }, "SELECT priority FROM run WHERE tenant = $1 AND task = $2", string(run.Tenant), string(run.Task))
	if err := fix.d.Platform().Do(fix.Context(), &batch); err != nil {
		fix.Fatal(err)
	}
	return p
}

// TestDetachedShare: runs whose callers have disconnected are bounded as well: a tenant that calls and disconnects
// occupies at most half of the live slots and as many background slots; the rest of its calls waits.
func TestDetachedShare(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		p, _ := b.openBlockingPool(queue.Options{MaxInflight: 8})
		n := 0
		for worker, ok := p.AcquireSlot("acme"); ok; worker, ok = p.AcquireSlot("acme") {
			run := b.acceptRun(worker)
			p.StartRun(run)
			p.DetachCaller("acme", run.Task)
			n++
		}
		if n != 8 {
			b.Errorf("%d runs are at work of an app whose callers leave, want 8", n)
		}
		if _, ok := p.AcquireSlot("quiet"); !ok {
			b.Error("another app finds no place")
		} else {
			p.ReleaseSlot("quiet")
		}
		p.DetachCaller("acme", agentsvc.TaskID("unknown"))
	})
}
