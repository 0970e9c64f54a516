package queue_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

var owner = agentsvc.Owner{Issuer: "stoa", Subject: "ana"}

// patience bounds how long a test waits for what must come.
const patience = 30 * time.Second

// bench is a database with runs of one tenant.
type bench struct {
	*testing.T
	d  *db.DB
	st *store.Store
}

func each(t *testing.T, f func(b bench)) {
	t.Parallel()
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { f(bench{t, d, store.New(d, "acme")}) })
}

// eventually waits until a condition holds.
func (b bench) eventually(what string, holds func() bool) {
	b.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !holds(); <-tick.C {
		if time.Now().After(end) {
			b.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// pool opens a pool; Run goes on until stop or the end of the test, and the pool is drained at the end.
func (b bench) pool(o queue.Options, handle queue.Handler) (p *queue.Pool, stop func()) {
	b.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p = queue.New(store.NewRuns(b.d), handle, o)
	if err := p.Open(b.Context(), false); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	b.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.Drain(now)
		stop()
	})
	return p, stop
}

// accept writes a new task whose run belongs to worker, or to nobody where that is "".
func (b bench) accept(worker string) store.Run { return b.acceptOf("acme", worker) }

func (b bench) acceptOf(tenant db.ID, worker string) store.Run {
	b.Helper()
	run := store.Run{Tenant: tenant, Task: agentsvc.TaskID(agentsvc.NewID()), Turn: 1, Agent: "a", Context: "c", Owner: owner, Worker: worker, Epoch: 1, Seq: 1, FirstSeq: 1, Fresh: true}
	state := agentsvc.Submitted
	if worker != "" {
		state, run.Attempts = agentsvc.Working, 1
	}
	ev := agentsvc.Event{Task: run.Task, Seq: 1, At: time.Now(), Status: &agentsvc.Status{State: state}}
	if err := b.st.Accept(b.Context(), run, []agentsvc.Event{ev}, nil); err != nil {
		b.Fatal(err)
	}
	return run
}

// live accepts a run and hands it over in memory.
func (b bench) live(p *queue.Pool) store.Run {
	b.Helper()
	worker, ok := p.Reserve("acme")
	for end := time.Now().Add(patience); !ok && time.Now().Before(end); worker, ok = p.Reserve("acme") {
		time.Sleep(time.Millisecond)
	}
	if !ok {
		b.Fatal("no place")
	}
	run := b.accept(worker)
	p.Start(run)
	return run
}

// finish records a run's end, as its worker.
func (b bench) finish(ctx context.Context, run store.Run) error {
	if run.Epoch == 0 {
		if _, err := b.st.Begin(ctx, &run); err != nil {
			return err
		}
	}
	ev := agentsvc.Event{Task: run.Task, Seq: run.Seq + 1, At: time.Now(), Status: &agentsvc.Status{State: agentsvc.Completed}}
	return b.st.Record(ctx, &run, store.Record{Events: []agentsvc.Event{ev}, End: store.Completed})
}

// due tells in how much time a run may be claimed.
func (b bench) due(run store.Run) time.Duration {
	b.Helper()
	var us int64
	var batch db.Batch
	batch.Query(func(s db.Row) error { return s.Scan(&us) },
		"SELECT available_at - stoa_now() FROM run WHERE tenant = $1 AND task = $2 AND turn = $3 AND NOT ready", string(run.Tenant), string(run.Task), run.Turn)
	if err := b.d.Platform().Do(context.Background(), &batch); err != nil {
		b.Fatal(err)
	}
	return time.Duration(us) * time.Microsecond
}

type row struct {
	State    store.RunState
	Attempts int64
}

func (b bench) row(run store.Run) (r row) {
	b.Helper()
	var batch db.Batch
	batch.Query(func(s db.Row) error { return s.Scan((*string)(&r.State), &r.Attempts) },
		"SELECT state, attempts FROM run WHERE tenant = $1 AND task = $2 AND turn = $3", string(run.Tenant), string(run.Task), run.Turn)
	if err := b.d.Platform().Do(context.Background(), &batch); err != nil {
		b.Fatal(err)
	}
	return r
}

// becomes waits until the run's row is as wanted.
func (b bench) becomes(run store.Run, want row) {
	b.Helper()
	var got row
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if got = b.row(run); got == want {
			return
		}
	}
	b.Errorf("the run is %+v, want %+v", got, want)
}

// receive waits for one value.
func receive[T any](b bench, c <-chan T) (v T) {
	b.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		b.Fatal("nothing came")
	}
	return v
}

// TestHandOver: what is accepted here runs here at once, as many at a time as there are places.
func TestHandOver(t *testing.T) {
	each(t, func(b bench) {
		began, leave := make(chan store.Run, 10), make(chan struct{})
		p, _ := b.pool(queue.Options{MaxInflight: 3, AppInflight: 3}, func(ctx context.Context, run store.Run) error {
			began <- run
			<-leave
			return b.finish(ctx, run)
		})
		var runs []store.Run
		for range 3 {
			runs = append(runs, b.live(p))
			receive(b, began)
		}
		if _, ok := p.Reserve("acme"); ok || p.Inflight() != 3 {
			b.Errorf("a fourth place: %v; at work: %d", ok, p.Inflight())
		}
		close(leave)
		for _, run := range runs {
			b.becomes(run, row{store.Completed, 1})
		}
		for end := time.Now().Add(patience); p.Inflight() > 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
		for range 3 {
			for _, ok := p.Reserve("acme"); !ok; _, ok = p.Reserve("acme") {
				time.Sleep(time.Millisecond)
			}
		}
		if _, ok := p.Reserve("acme"); ok {
			b.Error("a fourth place")
		}
		for range 3 {
			p.Release("acme")
		}
	})
}

// TestClaims: pending runs are worked off, as many at a time as there are workers, each once.
func TestClaims(t *testing.T) {
	each(t, func(b bench) {
		const runs, workers = 40, 3
		var at, most, times atomic.Int64
		p, _ := b.pool(queue.Options{Workers: workers}, func(ctx context.Context, run store.Run) error {
			most.Store(max(most.Load(), at.Add(1)))
			times.Add(1)
			time.Sleep(2 * time.Millisecond)
			defer at.Add(-1)
			return b.finish(ctx, run)
		})
		var all []store.Run
		for range runs {
			all = append(all, b.accept(""))
			p.Wake()
		}
		for _, run := range all {
			b.becomes(run, row{store.Completed, 1})
		}
		if most.Load() > workers || times.Load() != runs {
			b.Errorf("%d runs at a time and %d in all, want at most %d and %d", most.Load(), times.Load(), workers, runs)
		}
	})
}

// TestUnwoken: nobody has to say that a run is pending.
func TestUnwoken(t *testing.T) {
	each(t, func(b bench) {
		b.pool(queue.Options{}, b.finish)
		b.becomes(b.accept(""), row{store.Completed, 1})
	})
}

// TestRescue: what a dead process had under its hands another one finishes, and only that.
func TestRescue(t *testing.T) {
	each(t, func(b bench) {
		began, leave := make(chan store.Run, 10), make(chan struct{})
		defer close(leave)
		handle := func(ctx context.Context, run store.Run) error {
			began <- run
			if run.Attempts > 1 {
				return b.finish(ctx, run)
			}
			<-leave
			return agentsvc.ErrLost
		}
		o := queue.Options{Stale: 2 * time.Second}
		dead, die := b.pool(o, handle)
		orphan := b.live(dead)
		receive(b, began)
		alive, _ := b.pool(o, handle)
		held := b.live(alive)
		receive(b, began)
		die()
		b.becomes(orphan, row{store.Completed, 2})
		if got := b.row(held); got != (row{store.Running, 1}) {
			b.Errorf("the run of a process that beats is %+v", got)
		}
	})
}

// TestAlone: a process that knows that there is no other takes over at once what it finds.
func TestAlone(t *testing.T) {
	each(t, func(b bench) {
		if _, _, err := store.NewRuns(b.d).Beat(b.Context(), "dead", ""); err != nil {
			b.Fatal(err)
		}
		orphan := b.accept("dead")
		time.Sleep(time.Millisecond)
		p := queue.New(store.NewRuns(b.d), b.finish, queue.Options{})
		if err := p.Open(b.Context(), true); err != nil {
			b.Fatal(err)
		}
		if got := b.row(orphan); got != (row{store.Pending, 1}) {
			b.Errorf("the orphan is %+v", got)
		}
	})
}

// TestStale: a process that cannot renew its lease stops its runs before anybody else may have them, and has them
// again when it can.
func TestStale(t *testing.T) {
	t.Parallel()
	d := dbtest.Postgres(t)
	b := bench{t, d, store.New(d, "acme")}
	const stale = 3 * time.Second
	began, causes := make(chan store.Run, 10), make(chan error, 10)
	p, _ := b.pool(queue.Options{Stale: stale, Retry: queue.Retry{Max: 3}}, func(ctx context.Context, run store.Run) error {
		began <- run
		if run.Attempts > 1 {
			return b.finish(ctx, run)
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return context.Cause(ctx)
	})
	run := b.live(p)
	receive(b, began)
	var stopped time.Duration
	err := d.Platform().Tx(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), "LOCK TABLE worker IN ACCESS EXCLUSIVE MODE"); err != nil {
			return err
		}
		locked := time.Now()
		cause := receive(b, causes)
		stopped = time.Since(locked)
		if !errors.Is(cause, queue.ErrStale) {
			t.Errorf("stopped because %v", cause)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if stopped > stale {
		t.Errorf("stopped after %v, when others had the right to the run", stopped)
	}
	b.becomes(run, row{store.Completed, 2})
}

// TestDrain: a process that stops finishes what it can in time, gives the rest back uncounted, and takes nothing more.
func TestDrain(t *testing.T) {
	each(t, func(b bench) {
		began, leave, causes := make(chan store.Run, 10), make(chan struct{}), make(chan error, 10)
		p, _ := b.pool(queue.Options{Workers: 1}, func(ctx context.Context, run store.Run) error {
			began <- run
			select {
			case <-leave:
				return b.finish(ctx, run)
			case <-ctx.Done():
				causes <- context.Cause(ctx)
				return context.Cause(ctx)
			}
		})
		quick, slow := b.live(p), b.accept("")
		p.Wake()
		receive(b, began)
		receive(b, began)
		drained := make(chan error)
		ctx, cancel := context.WithCancel(b.Context())
		go func() { drained <- p.Drain(ctx) }()
		for _, ok := p.Reserve("acme"); ok; _, ok = p.Reserve("acme") {
			p.Release("acme")
			time.Sleep(time.Millisecond)
		}
		late := b.accept("")
		p.Wake()
		leave <- struct{}{}
		for end := time.Now().Add(patience); p.Inflight() > 1 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
		select {
		case err := <-drained:
			b.Fatalf("drained (%v) with a run at work", err)
		case <-time.After(50 * time.Millisecond):
		}
		cancel()
		if err := receive(b, drained); err != nil {
			b.Errorf("drain: %v", err)
		}
		if cause := receive(b, causes); !errors.Is(cause, queue.ErrStopping) {
			b.Errorf("stopped because %v", cause)
		}
		rows := map[row]int{b.row(quick): 1}
		rows[b.row(slow)]++
		if rows[row{store.Completed, 1}] != 1 || rows[row{store.Pending, 0}] != 1 {
			b.Errorf("the two runs are %v, want one finished and one given back uncounted", rows)
		}
		if got := b.row(late); got != (row{store.Pending, 0}) {
			b.Errorf("a run that came too late is %+v", got)
		}
		if held, err := store.NewRuns(b.d).Rescue(b.Context(), time.Hour); err != nil || held != 0 {
			b.Errorf("%d runs are still leased (%v)", held, err)
		}
	})
}

// TestDrainQuiet: a pool that has given its lease back renews it no more, so that nobody takes the process for one that
// died and came back.
func TestDrainQuiet(t *testing.T) {
	each(t, func(b bench) {
		var log strings.Builder
		p, stop := b.pool(queue.Options{Stale: 900 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil))}, b.finish)
		b.beats()
		if err := p.Drain(b.Context()); err != nil {
			b.Error(err)
		}
		time.Sleep(700 * time.Millisecond) // two renewals
		stop()
		var workers int
		var batch db.Batch
		batch.Query(func(r db.Row) error { return r.Scan(&workers) }, "SELECT COUNT(*) FROM worker")
		if err := b.d.Platform().Do(b.Context(), &batch); err != nil || workers != 0 || strings.Contains(log.String(), "counted as dead") {
			b.Errorf("%d leases (%v), log:\n%s", workers, err, log.String())
		}
	})
}

// TestDrainDeaf: a run that does not hear that it is over keeps nobody from going home.
func TestDrainDeaf(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	b := bench{t, d, store.New(d, "acme")}
	began, leave := make(chan store.Run, 1), make(chan struct{})
	p, _ := b.pool(queue.Options{}, func(_ context.Context, run store.Run) error { began <- run; <-leave; return nil })
	run := b.live(p)
	receive(b, began)
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Drain(now); err != nil {
		t.Errorf("drain: %v", err)
	}
	if got := b.row(run); got != (row{store.Pending, 0}) {
		t.Errorf("the run is %+v, want it given back", got)
	}
	close(leave)
}

// TestStop: who loses a task stops at once, and its run with it.
func TestStop(t *testing.T) {
	each(t, func(b bench) {
		began := make(chan store.Run, 1)
		causes := make(chan error, 1)
		p, _ := b.pool(queue.Options{}, func(ctx context.Context, run store.Run) error {
			began <- run
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return context.Cause(ctx)
		})
		run := b.live(p)
		receive(b, began)
		p.Stop("globex", run.Task)
		p.Stop("acme", "another")
		select {
		case cause := <-causes:
			b.Fatalf("another's stop: %v", cause)
		case <-time.After(20 * time.Millisecond):
		}
		p.Stop("acme", run.Task)
		if cause := receive(b, causes); !errors.Is(cause, agentsvc.ErrLost) {
			b.Errorf("stopped because %v", cause)
		}
		b.becomes(run, row{store.Completed, 1})
	})
}

// TestPostponed: the runs of a tenant that may not work now are given back, uncounted, for later.
func TestPostponed(t *testing.T) {
	each(t, func(b bench) {
		began := make(chan store.Run, 1)
		p, _ := b.pool(queue.Options{}, func(ctx context.Context, run store.Run) error {
			began <- run
			<-ctx.Done()
			return context.Cause(ctx)
		})
		run := b.live(p)
		receive(b, began)
		p.StopTenant("globex")
		p.StopTenant("acme")
		b.becomes(run, row{store.Pending, 0})
		if in := b.due(run); in < 20*time.Second {
			b.Errorf("due in %v, want some time later", in)
		}
	})
}

// TestUndone: a run whose handler cannot record an end, or panics, is tried again.
func TestUndone(t *testing.T) {
	each(t, func(b bench) {
		o := queue.Options{Stale: 3 * time.Second, Retry: queue.Retry{Max: 3, Initial: time.Millisecond, Limit: time.Millisecond}}
		p, _ := b.pool(o, func(ctx context.Context, run store.Run) error {
			switch run.Attempts {
			case 1:
				return errors.New("the database is away")
			case 2:
				panic("a bug")
			}
			return b.finish(ctx, run)
		})
		b.becomes(b.live(p), row{store.Completed, 3})
	})
}

// TestStray: a run that was leased to this process and never reached it, because the answer to its acceptance was
// lost, is found.
func TestStray(t *testing.T) {
	each(t, func(b bench) {
		began, leave := make(chan store.Run, 10), make(chan struct{})
		p, _ := b.pool(queue.Options{Stale: 3 * time.Second}, func(ctx context.Context, run store.Run) error {
			began <- run
			if run.Epoch == 1 {
				<-leave
			}
			return b.finish(ctx, run)
		})
		busy := b.live(p)
		receive(b, began)
		worker, _ := p.Reserve("acme")
		p.Release("acme")
		stray := b.accept(worker)
		b.becomes(stray, row{store.Completed, 2})
		if got := b.row(busy); got != (row{store.Running, 1}) {
			b.Errorf("a run at work is %+v", got)
		}
		close(leave)
		b.becomes(busy, row{store.Completed, 1})
	})
}

// TestBack: a run comes back to a process that still has an earlier attempt of it: the earlier one stops, and its
// stopping harms the later one in nothing.
func TestBack(t *testing.T) {
	each(t, func(b bench) {
		began, causes := make(chan store.Run, 10), make(chan error, 10)
		var p *queue.Pool
		p, _ = b.pool(queue.Options{}, func(ctx context.Context, run store.Run) error {
			began <- run
			if run.Attempts > 1 {
				<-causes // the earlier attempt goes first
				time.Sleep(20 * time.Millisecond)
				if n := p.Inflight(); n != 1 {
					b.Errorf("%d runs are known to be at work, want this one", n)
				}
				return b.finish(ctx, run)
			}
			<-ctx.Done()
			defer func() { causes <- nil }()
			return context.Cause(ctx)
		})
		run := b.live(p)
		receive(b, began)
		if err := store.NewRuns(b.d).GiveBack(b.Context(), run, store.Back{}); err != nil {
			b.Fatal(err)
		}
		p.Wake()
		b.becomes(run, row{store.Completed, 2})
	})
}

// TestGivenUp: a run of which no try records an end is given up after its last, with its reason; one whose worker died
// in the last is not begun again. What the database's absence caused counts for nothing.
func TestGivenUp(t *testing.T) {
	each(t, func(b bench) {
		type end struct {
			attempts int64
			reason   string
		}
		given := make(chan end, 10)
		var tries, away atomic.Int64
		o := queue.Options{Retry: queue.Retry{Max: 1, Initial: time.Millisecond, Limit: time.Millisecond}}
		o.GiveUp = func(_ context.Context, run store.Run, reason string) error {
			given <- end{run.Attempts, reason}
			return agentsvc.ErrLost
		}
		p, _ := b.pool(o, func(context.Context, store.Run) error {
			tries.Add(1)
			if away.Add(1) <= 2 {
				return db.ErrUnknownOutcome
			}
			return errors.New("cannot begin")
		})
		run := b.accept("")
		p.Wake()
		if got := receive(b, given); got != (end{2, "cannot begin"}) || tries.Load() != 4 {
			b.Errorf("given up %+v after %d tries, want two that count beside two that do not", got, tries.Load())
		}
		b.becomes(run, row{store.Completed, 2})
		dead := b.accept("dead")
		for range 2 {
			if _, err := store.NewRuns(b.d).Rescue(b.Context(), time.Hour); err != nil {
				b.Fatal(err)
			}
		}
		if err := b.d.Platform().Do(b.Context(), attempted(dead, 2)); err != nil {
			b.Fatal(err)
		}
		p.Wake()
		if got := receive(b, given); got.attempts != 2 || tries.Load() != 4 {
			b.Errorf("given up %+v, and begun again: %v", got, tries.Load() != 4)
		}
		b.becomes(dead, row{store.Completed, 3})
	})
}

// attempted sets how many attempts a run has had.
func attempted(run store.Run, n int64) *db.Batch {
	var batch db.Batch
	batch.Exec(nil, "UPDATE run SET attempts = $3 WHERE tenant = $1 AND task = $2", string(run.Tenant), string(run.Task), n)
	return &batch
}

// TestAwaited: a run that somebody waits for and that found no place has the next one that comes free, and needs no
// worker of the queue, which is busy all the while.
func TestAwaited(t *testing.T) {
	each(t, func(b bench) {
		began, leave, leaveQueue := make(chan store.Run, 10), make(chan struct{}), make(chan struct{})
		var queued atomic.Pointer[agentsvc.TaskID]
		p, _ := b.pool(queue.Options{MaxInflight: 1, Workers: 1}, func(ctx context.Context, run store.Run) error {
			began <- run
			if of := queued.Load(); of != nil && *of == run.Task {
				<-leaveQueue
			} else {
				<-leave
			}
			return b.finish(ctx, run)
		})
		first := b.live(p)
		receive(b, began)
		other := b.accept("")
		queued.Store(&other.Task)
		p.Queued(other)
		receive(b, began) // both places are taken
		run := b.accept("")
		run.Priority = store.Awaited
		p.Queued(run)
		leave <- struct{}{}
		if got := receive(b, began); got.Task != run.Task {
			b.Errorf("began %s, want %s", got.Task, run.Task)
		}
		leave <- struct{}{}
		close(leaveQueue)
		for _, r := range []store.Run{first, other, run} {
			b.becomes(r, row{store.Completed, 1})
		}
	})
}

// TestFloodedQueue: however many runs of one app wait, another's single one comes next.
func TestFloodedQueue(t *testing.T) {
	each(t, func(b bench) {
		const workers = 2
		begun, leave := make(chan store.Run), make(chan struct{})
		handle := func(ctx context.Context, run store.Run) error {
			begun <- run
			<-leave
			return bench{b.T, b.d, store.New(b.d, run.Tenant)}.finish(ctx, run)
		}
		for range 40 {
			b.accept("")
		}
		p, _ := b.pool(queue.Options{Workers: workers}, handle)
		p.Wake()
		for range workers {
			<-begun
		}
		quiet := bench{b.T, b.d, store.New(b.d, "quiet")}
		run := quiet.acceptOf("quiet", "")
		for before := 0; ; before++ {
			leave <- struct{}{}
			if got := receive(b, begun); got.Task == run.Task {
				break
			}
			if before >= workers {
				b.Fatalf("%d runs of the flood went before", before+1)
			}
		}
		go func() {
			for range begun {
			}
		}()
		close(leave)
		quiet.becomes(run, row{store.Completed, 1})
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if st, err := store.NewRuns(b.d).Stats(b.Context()); err == nil && st.Pending+st.Running == 0 {
				break
			}
		}
		close(begun)
	})
}

// TestWoken: a process that was stopped for longer than its lease takes nothing new until it has renewed it, and stops
// what others have taken meanwhile.
func TestWoken(t *testing.T) {
	each(t, func(b bench) {
		began, causes := make(chan store.Run, 10), make(chan error, 10)
		p, _ := b.pool(queue.Options{Stale: 6 * time.Second}, func(ctx context.Context, run store.Run) error {
			began <- run
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return context.Cause(ctx)
		})
		b.live(p)
		receive(b, began)
		worker, _ := p.Reserve("acme")
		p.Release("acme")
		for rescued := int64(0); rescued == 0; { // others find it dead, unless a heartbeat comes in between
			var gone db.Batch
			gone.Exec(nil, "DELETE FROM worker WHERE id = $1", worker)
			err := b.d.Platform().Do(b.Context(), &gone)
			if err == nil {
				rescued, err = store.NewRuns(b.d).Rescue(b.Context(), time.Hour)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		if runs, err := store.NewRuns(b.d).Claim(b.Context(), "other", []store.Share{{Tenant: "acme", Take: 1}}); err != nil || len(runs) > 1 {
			b.Fatalf("another claimed %d runs (%v)", len(runs), err)
		}
		if cause := receive(b, causes); !errors.Is(cause, agentsvc.ErrLost) {
			b.Errorf("stopped because %v", cause)
		}
	})
}
