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

// holding opens a pool whose runs do not end before the test does. Those that begin come out of begun.
func (b bench) holding(o queue.Options) (p *queue.Pool, begun chan store.Run) {
	b.Helper()
	begun, leave := make(chan store.Run, 2000), make(chan struct{})
	p, _ = b.pool(o, func(ctx context.Context, run store.Run) error {
		begun <- run
		select {
		case <-leave:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return b.of(run.Tenant).finish(ctx, run)
	})
	b.Cleanup(func() { close(leave) }) // before the pool is drained
	return p, begun
}

// of is the bench of another tenant.
func (b bench) of(tenant db.ID) bench { return bench{b.T, b.d, store.New(b.d, tenant)} }

// flood queues n runs of an app.
func (b bench) flood(app db.ID, n int) {
	b.Helper()
	for range n {
		b.of(app).acceptOf(app, "")
	}
}

// counts returns how many of the next n runs that begin are of each app.
func counts(b bench, begun <-chan store.Run, n int) map[db.ID]int {
	b.Helper()
	got := map[db.ID]int{}
	for range n {
		got[receive(b, begun).Tenant]++
	}
	return got
}

// withWorkers runs f with one worker, which an app then has alone, and with several.
func withWorkers(t *testing.T, f func(b bench, workers int)) {
	t.Helper()
	for _, workers := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			each(t, func(b bench) { f(b, workers) })
		})
	}
}

// TestWorkerKeptFree: runs of one app that do not end take all workers and no more; a queued run of another begins all the
// same, with one worker too.
func TestWorkerKeptFree(t *testing.T) {
	withWorkers(t, func(b bench, workers int) {
		p, begun := b.holding(queue.Options{Workers: workers})
		b.flood("greedy", 3*workers)
		p.Wake()
		if diff := cmp.Diff(map[db.ID]int{"greedy": workers}, counts(b, begun, workers)); diff != "" {
			b.Error(diff)
		}
		b.flood("quiet", 1)
		p.Wake()
		if next := receive(b, begun); next.Tenant != "quiet" {
			b.Errorf("a run of %s began", next.Tenant)
		}
		if n := p.Inflight(); n != workers+1 {
			b.Errorf("%d runs are at work, want %d", n, workers+1)
		}
	})
}

// TestCollusion: several apps together take every worker with runs that do not end. Each app that has none gets its turn
// nevertheless, one run, and no more as long as that one is at work.
func TestCollusion(t *testing.T) {
	withWorkers(t, func(b bench, workers int) {
		p, begun := b.holding(queue.Options{Workers: workers, Turn: 10 * time.Millisecond})
		apps := []db.ID{"one", "two", "three"}
		for _, app := range apps {
			b.flood(app, 10)
		}
		p.Wake()
		first := counts(b, begun, max(workers, len(apps)))
		for _, app := range apps {
			if first[app] == 0 {
				b.Errorf("nothing of %s began: %v", app, first)
			}
		}
		late := []db.ID{"quiet", "silent", "still"}
		for _, app := range late {
			b.flood(app, 2)
		}
		p.Wake()
		if diff := cmp.Diff(map[db.ID]int{"quiet": 1, "silent": 1, "still": 1}, counts(b, begun, len(late))); diff != "" {
			b.Error(diff)
		}
		for range 3 { // looks of the queue, each of which could lend another place
			p.Wake()
			select {
			case run := <-begun:
				b.Errorf("another run of %s began beside its first", run.Tenant)
			case <-time.After(time.Second):
			}
		}
	})
}

// TestLiveShare: an app has at most as many places for live runs as it leaves free, so that whoever comes next finds one,
// however many others have taken all that they may.
func TestLiveShare(t *testing.T) {
	each(t, func(b bench) {
		p, _ := b.holding(queue.Options{})
		reserve := func(app db.ID) (n int) {
			for _, ok := p.Reserve(app); ok; _, ok = p.Reserve(app) {
				n++
			}
			b.Cleanup(func() {
				for range n {
					p.Release(app)
				}
			})
			return n
		}
		got := map[db.ID]int{"one": reserve("one"), "two": reserve("two"), "three": reserve("three"), "quiet": reserve("quiet")}
		if diff := cmp.Diff(map[db.ID]int{"one": 256, "two": 128, "three": 64, "quiet": 32}, got); diff != "" {
			b.Error(diff)
		}
		loose, _ := b.holding(queue.Options{MaxInflight: 8, AppInflight: 7})
		for n := range 8 {
			if _, ok := loose.Reserve("one"); ok != (n < 7) {
				b.Errorf("place %d of the 7 that an app may have: %v", n+1, ok)
			}
		}
		for range 7 {
			loose.Release("one")
		}
	})
}

// TestDetach: a run whose caller is gone goes on and leaves its place to others; one that waits in the queue no longer goes
// before those that nobody waits for.
func TestDetach(t *testing.T) {
	each(t, func(b bench) {
		p, begun := b.holding(queue.Options{MaxInflight: 8, Workers: 1})
		var live []store.Run
		for range 4 {
			live = append(live, b.live(p))
			receive(b, begun)
		}
		if _, ok := p.Reserve("acme"); ok {
			b.Fatal("a fifth place of eight")
		}
		b.flood("acme", 1)
		p.Wake()
		receive(b, begun) // the worker
		waits := b.accept("")
		b.awaited(waits)
		waits.Priority = store.Awaited
		p.Queued(waits)
		p.Detach("acme", waits.Task)
		b.eventually("a run in the queue whose caller is gone goes before no others", func() bool { return b.priority(waits) == store.Normal })
		for _, run := range live {
			p.Detach("acme", run.Task)
		}
		for n := range 4 {
			if _, ok := p.Reserve("acme"); !ok {
				b.Errorf("only %d places are free although four callers are gone", n)
				continue
			}
			b.Cleanup(func() { p.Release("acme") })
		}
		for _, run := range live {
			if got := b.row(run); got != (row{store.Running, 1}) {
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

// awaited has a run in the queue be one that somebody waits for.
func (b bench) awaited(run store.Run) {
	b.Helper()
	var batch db.Batch
	batch.Exec(nil, "UPDATE run SET priority = 0 WHERE tenant = $1 AND task = $2", string(run.Tenant), string(run.Task))
	if err := b.d.Platform().Do(b.Context(), &batch); err != nil {
		b.Fatal(err)
	}
}

func (b bench) priority(run store.Run) (p store.Priority) {
	b.Helper()
	var batch db.Batch
	batch.Query(func(s db.Row) error { return s.Scan((*int64)(&p)) }, "SELECT priority FROM run WHERE tenant = $1 AND task = $2", string(run.Tenant), string(run.Task))
	if err := b.d.Platform().Do(b.Context(), &batch); err != nil {
		b.Fatal(err)
	}
	return p
}

// TestDetachedShare: runs whose callers are gone are bounded as well. An app that calls and leaves has at most half of the
// places for live runs and as many more; the rest of its calls waits.
func TestDetachedShare(t *testing.T) {
	each(t, func(b bench) {
		p, _ := b.holding(queue.Options{MaxInflight: 8})
		n := 0
		for worker, ok := p.Reserve("acme"); ok; worker, ok = p.Reserve("acme") {
			run := b.accept(worker)
			p.Start(run)
			p.Detach("acme", run.Task)
			n++
		}
		if n != 8 {
			b.Errorf("%d runs are at work of an app whose callers leave, want 8", n)
		}
		if _, ok := p.Reserve("quiet"); !ok {
			b.Error("another app finds no place")
		} else {
			p.Release("quiet")
		}
		p.Detach("acme", agentsvc.TaskID("unknown"))
	})
}
