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
	"stoa/agentsvc/store/queuestats"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

var owner = agentsvc.Owner{Issuer: "stoa", Subject: "ana"}

// testTimeout bounds how long a test waits for an event that must come.
const testTimeout = time.Minute

// fixture is a database with runs of one tenant.
type fixture struct {
	*testing.T
	d  *db.DB
	st *store.Store
}

func forEachEngine(t *testing.T, f func(b fixture)) {
	t.Parallel()
	t.Helper()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) { f(fixture{t, d, store.New(d, "acme")}) })
}

// waitUntil waits until a condition holds.
func (fix fixture) waitUntil(what string, holds func() bool) {
	fix.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(testTimeout); !holds(); <-tick.C {
		if time.Now().After(end) {
			fix.Fatalf("not within %v: %s", testTimeout, what)
		}
	}
}

// openPool opens a pool. Run is active until stop or the end of the test, and the pool is drained at the end.
func (fix fixture) openPool(o queue.Options, handle queue.Handler) (p *queue.Pool, stop func()) {
	fix.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p = queue.New(fix.d, handle, o)
	if err := p.Open(fix.Context(), false); err != nil {
		fix.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	fix.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.Drain(now)
		stop()
	})
	return p, stop
}

// acceptRun writes a new task whose run is leased to worker, or pending where that is "".
func (fix fixture) acceptRun(worker string) store.Run { return fix.acceptRunOf("acme", worker) }

func (fix fixture) acceptRunOf(tenant db.ID, worker string) store.Run {
	fix.Helper()
	run := store.Run{Tenant: tenant, Task: agentsvc.TaskID(agentsvc.NewID()), Turn: 1, Agent: "a", Context: "c", Owner: owner, FirstSeq: 1, IsNewContext: true, Lease: store.Lease{Worker: worker, Epoch: 1, Seq: 1}}
	state := agentsvc.Submitted
	if worker != "" {
		state, run.Attempts = agentsvc.Working, 1
	}
	ev := agentsvc.Event{Task: run.Task, Seq: 1, At: time.Now(), Status: &agentsvc.Status{State: state}}
	if err := fix.st.Tasks.Create(fix.Context(), store.NewTurn{Run: run, Events: []agentsvc.Event{ev}}); err != nil {
		fix.Fatal(err)
	}
	return run
}

// startLiveRun accepts a run and hands it over in memory.
func (fix fixture) startLiveRun(p *queue.Pool) store.Run {
	fix.Helper()
	worker, ok := p.AcquireSlot("acme")
	for end := time.Now().Add(testTimeout); !ok && time.Now().Before(end); worker, ok = p.AcquireSlot("acme") {
		time.Sleep(time.Millisecond)
	}
	if !ok {
		fix.Fatal("no place")
	}
	run := fix.acceptRun(worker)
	p.StartRun(run)
	return run
}

// finishRun records a run's end as its worker.
func (fix fixture) finishRun(ctx context.Context, run store.Run, _ agentsvc.LeaseCheck) error {
	if run.Epoch == 0 {
		if _, err := fix.st.Runs.BeginRun(ctx, &run); err != nil {
			return err
		}
	}
	ev := agentsvc.Event{Task: run.Task, Seq: run.Seq + 1, At: time.Now(), Status: &agentsvc.Status{State: agentsvc.Completed}}
	return fix.st.Runs.WriteRecord(ctx, &run, store.Record{Events: []agentsvc.Event{ev}, EndState: store.Completed})
}

// timeUntilDue returns the time until a run may be claimed.
func (fix fixture) timeUntilDue(run store.Run) time.Duration {
	fix.Helper()
	var us int64
	var batch db.Batch
	batch.Query(func(s db.Row) error { return s.Scan(&us) },
		"SELECT available_at - stoa_now() FROM run WHERE tenant = $1 AND task = $2 AND turn = $3 AND NOT ready", string(run.Tenant), string(run.Task), run.Turn)
	if err := fix.d.Platform().Do(context.Background(), &batch); err != nil {
		fix.Fatal(err)
	}
	return time.Duration(us) * time.Microsecond
}

type runRow struct {
	State    store.RunState
	Attempts int64
}

func (fix fixture) readRow(run store.Run) (r runRow) {
	fix.Helper()
	var batch db.Batch
	batch.Query(func(s db.Row) error { return s.Scan((*string)(&r.State), &r.Attempts) },
		"SELECT state, attempts FROM run WHERE tenant = $1 AND task = $2 AND turn = $3", string(run.Tenant), string(run.Task), run.Turn)
	if err := fix.d.Platform().Do(context.Background(), &batch); err != nil {
		fix.Fatal(err)
	}
	return r
}

// waitForRow waits until the run's row has the wanted values.
func (fix fixture) waitForRow(run store.Run, want runRow) {
	fix.Helper()
	var got runRow
	for end := time.Now().Add(testTimeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if got = fix.readRow(run); got == want {
			return
		}
	}
	fix.Errorf("the run is %+v, want %+v", got, want)
}

// receiveValue waits for one value.
func receiveValue[T any](b fixture, c <-chan T) (v T) {
	b.Helper()
	select {
	case v = <-c:
	case <-time.After(testTimeout):
		b.Fatal("nothing came")
	}
	return v
}

// TestLiveRuns: runs that are accepted here start here at once, as many at a time as there are live slots.
func TestLiveRuns(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		began, finish := make(chan store.Run, 10), make(chan struct{})
		p, _ := b.openPool(queue.Options{MaxInflight: 3, AppInflight: 3}, func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
			began <- run
			<-finish
			return b.finishRun(ctx, run, lease)
		})
		var runs []store.Run
		for range 3 {
			runs = append(runs, b.startLiveRun(p))
			receiveValue(b, began)
		}
		if _, ok := p.AcquireSlot("acme"); ok || p.Inflight() != 3 {
			b.Errorf("a fourth place: %v; at work: %d", ok, p.Inflight())
		}
		close(finish)
		for _, run := range runs {
			b.waitForRow(run, runRow{store.Completed, 1})
		}
		for end := time.Now().Add(testTimeout); p.Inflight() > 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
		for range 3 {
			for _, ok := p.AcquireSlot("acme"); !ok; _, ok = p.AcquireSlot("acme") {
				time.Sleep(time.Millisecond)
			}
		}
		if _, ok := p.AcquireSlot("acme"); ok {
			b.Error("a fourth place")
		}
		for range 3 {
			p.ReleaseSlot("acme")
		}
	})
}

// TestClaims: pending runs are executed, as many at a time as there are workers, each once.
func TestClaims(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		const runs, workers = 40, 3
		var at, most, times atomic.Int64
		p, _ := b.openPool(queue.Options{Workers: workers}, func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
			most.Store(max(most.Load(), at.Add(1)))
			times.Add(1)
			time.Sleep(2 * time.Millisecond)
			defer at.Add(-1)
			return b.finishRun(ctx, run, lease)
		})
		var all []store.Run
		for range runs {
			all = append(all, b.acceptRun(""))
			p.WakeClaimers()
		}
		for _, run := range all {
			b.waitForRow(run, runRow{store.Completed, 1})
		}
		if most.Load() > workers || times.Load() != runs {
			b.Errorf("%d runs at a time and %d in all, want at most %d and %d", most.Load(), times.Load(), workers, runs)
		}
	})
}

// TestUnwoken: a pending run is found without any signal.
func TestUnwoken(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		b.openPool(queue.Options{}, b.finishRun)
		b.waitForRow(b.acceptRun(""), runRow{store.Completed, 1})
	})
}

// TestRescue: another process finishes the runs of a dead process, and only these.
func TestRescue(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		began, finish := make(chan store.Run, 10), make(chan struct{})
		defer close(finish)
		handle := func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
			began <- run
			if run.Attempts > 1 {
				return b.finishRun(ctx, run, lease)
			}
			<-finish
			return agentsvc.ErrLeaseLost
		}
		o := queue.Options{StaleAfter: 2 * time.Second}
		dead, die := b.openPool(o, handle)
		orphan := b.startLiveRun(dead)
		receiveValue(b, began)
		alive, _ := b.openPool(o, handle)
		leased := b.startLiveRun(alive)
		receiveValue(b, began)
		die()
		b.waitForRow(orphan, runRow{store.Completed, 2})
		if got := b.readRow(leased); got != (runRow{store.Running, 1}) {
			b.Errorf("the run of a process that beats is %+v", got)
		}
	})
}

// TestAlone: a process that knows that it is the only one rescues leased runs at once.
func TestAlone(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		if _, _, err := store.NewRunQueue(b.d).WriteHeartbeat(b.Context(), "dead", ""); err != nil {
			b.Fatal(err)
		}
		orphan := b.acceptRun("dead")
		time.Sleep(time.Millisecond)
		p := queue.New(b.d, b.finishRun, queue.Options{})
		if err := p.Open(b.Context(), true); err != nil {
			b.Fatal(err)
		}
		if got := b.readRow(orphan); got != (runRow{store.Pending, 1}) {
			b.Errorf("the orphan is %+v", got)
		}
	})
}

// TestStale: a process that cannot renew its lease cancels its runs before another one may rescue them, and executes
// them again when it can.
func TestStale(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t)
	b := fixture{t, d, store.New(d, "acme")}
	const stale = 3 * time.Second
	began, causes := make(chan store.Run, 10), make(chan error, 10)
	p, _ := b.openPool(queue.Options{StaleAfter: stale, Retry: queue.Retry{MaxRetries: 3}}, func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
		began <- run
		if run.Attempts > 1 {
			return b.finishRun(ctx, run, lease)
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return context.Cause(ctx)
	})
	run := b.startLiveRun(p)
	receiveValue(b, began)
	var stopped time.Duration
	err := d.Platform().RunTx(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), "LOCK TABLE worker IN ACCESS EXCLUSIVE MODE"); err != nil {
			return err
		}
		locked := time.Now()
		cause := receiveValue(b, causes)
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
	b.waitForRow(run, runRow{store.Completed, 2})
}

// TestDrain: a stopping process finishes what it can in time, returns the rest uncounted and accepts nothing more.
func TestDrain(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		began, finish, causes := make(chan store.Run, 10), make(chan struct{}), make(chan error, 10)
		p, _ := b.openPool(queue.Options{Workers: 1}, func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
			began <- run
			select {
			case <-finish:
				return b.finishRun(ctx, run, lease)
			case <-ctx.Done():
				causes <- context.Cause(ctx)
				return context.Cause(ctx)
			}
		})
		quick, slow := b.startLiveRun(p), b.acceptRun("")
		p.WakeClaimers()
		receiveValue(b, began)
		receiveValue(b, began)
		drained := make(chan error)
		ctx, cancel := context.WithCancel(b.Context())
		go func() { drained <- p.Drain(ctx) }()
		for _, ok := p.AcquireSlot("acme"); ok; _, ok = p.AcquireSlot("acme") {
			p.ReleaseSlot("acme")
			time.Sleep(time.Millisecond)
		}
		late := b.acceptRun("")
		p.WakeClaimers()
		finish <- struct{}{}
		for end := time.Now().Add(testTimeout); p.Inflight() > 1 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
		select {
		case err := <-drained:
			b.Fatalf("drained (%v) with a run at work", err)
		case <-time.After(50 * time.Millisecond):
		}
		cancel()
		if err := receiveValue(b, drained); err != nil {
			b.Errorf("drain: %v", err)
		}
		if cause := receiveValue(b, causes); !errors.Is(cause, queue.ErrStopping) {
			b.Errorf("stopped because %v", cause)
		}
		rows := map[runRow]int{b.readRow(quick): 1}
		rows[b.readRow(slow)]++
		if rows[runRow{store.Completed, 1}] != 1 || rows[runRow{store.Pending, 0}] != 1 {
			b.Errorf("the two runs are %v, want one finished and one given back uncounted", rows)
		}
		if got := b.readRow(late); got != (runRow{store.Pending, 0}) {
			b.Errorf("a run that came too late is %+v", got)
		}
		if leased, _, err := store.NewRunQueue(b.d).RescueRuns(b.Context(), time.Hour); err != nil || leased != 0 {
			b.Errorf("%d runs are still leased (%v)", leased, err)
		}
	})
}

// TestDrainQuiet: a pool that has released its lease does not renew it any more, so that it does not look like a
// process that died and came back.
func TestDrainQuiet(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		var log strings.Builder
		p, stop := b.openPool(queue.Options{StaleAfter: 900 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil))}, b.finishRun)
		b.waitForHeartbeat()
		if err := p.Drain(b.Context()); err != nil {
			b.Error(err)
		}
		time.Sleep(700 * time.Millisecond) // two renewals
		stop()
		var workers int
		var batch db.Batch
		batch.Query(func(r db.Row) error { return r.Scan(&workers) }, "SELECT COUNT(*) FROM worker")
		if err := b.d.Platform().Do(b.Context(), &batch); err != nil || workers != 0 || strings.Contains(log.String(), "taken for dead") {
			b.Errorf("%d leases (%v), log:\n%s", workers, err, log.String())
		}
	})
}

// TestDrainIgnoredByRun: a run that ignores its cancellation does not keep Drain from returning.
func TestDrainIgnoredByRun(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	b := fixture{t, d, store.New(d, "acme")}
	began, finish := make(chan store.Run, 1), make(chan struct{})
	p, _ := b.openPool(queue.Options{}, func(_ context.Context, run store.Run, _ agentsvc.LeaseCheck) error {
		began <- run
		<-finish
		return nil
	})
	run := b.startLiveRun(p)
	receiveValue(b, began)
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Drain(now); err != nil {
		t.Errorf("drain: %v", err)
	}
	if got := b.readRow(run); got != (runRow{store.Pending, 0}) {
		t.Errorf("the run is %+v, want it given back", got)
	}
	if got := p.Returned(); got != 1 {
		t.Errorf("%d runs are reported as returned, want 1", got)
	}
	close(finish)
}

// TestStop: a run whose task was taken from it is cancelled at once.
func TestStop(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		began := make(chan store.Run, 1)
		causes := make(chan error, 1)
		p, _ := b.openPool(queue.Options{}, func(ctx context.Context, run store.Run, _ agentsvc.LeaseCheck) error {
			began <- run
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return context.Cause(ctx)
		})
		run := b.startLiveRun(p)
		receiveValue(b, began)
		p.StopRun("globex", run.Task)
		p.StopRun("acme", "another")
		select {
		case cause := <-causes:
			b.Fatalf("another's stop: %v", cause)
		case <-time.After(20 * time.Millisecond):
		}
		b.cancelTask(run)
		p.StopRun("acme", run.Task)
		if cause := receiveValue(b, causes); !errors.Is(cause, agentsvc.ErrLeaseLost) {
			b.Errorf("stopped because %v", cause)
		}
		b.waitForRow(run, runRow{store.Completed, 1})
	})
}

// TestPostponed: the runs of a suspended tenant are returned uncounted, with a delay.
func TestPostponed(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		began := make(chan store.Run, 1)
		p, _ := b.openPool(queue.Options{}, func(ctx context.Context, run store.Run, _ agentsvc.LeaseCheck) error {
			began <- run
			<-ctx.Done()
			return context.Cause(ctx)
		})
		run := b.startLiveRun(p)
		receiveValue(b, began)
		p.StopTenant("globex")
		p.StopTenant("acme")
		b.waitForRow(run, runRow{store.Pending, 0})
		if in := b.timeUntilDue(run); in < 20*time.Second {
			b.Errorf("due in %v, want some time later", in)
		}
	})
}

// TestUndone: a run whose handler cannot record an end, or panics, is retried.
func TestUndone(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		o := queue.Options{StaleAfter: 3 * time.Second, Retry: queue.Retry{MaxRetries: 3, InitialDelay: time.Millisecond, MaxDelay: time.Millisecond}}
		p, _ := b.openPool(o, func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
			switch run.Attempts {
			case 1:
				return errors.New("the database is away")
			case 2:
				panic("a bug")
			}
			return b.finishRun(ctx, run, lease)
		})
		b.waitForRow(b.startLiveRun(p), runRow{store.Completed, 3})
	})
}

// TestOrphanRun: a run that was leased to this process but never started, because the answer to its acceptance was
// lost, is found by the next rounds of the heartbeat loop, however long StaleAfter is, and returned uncounted.
func TestOrphanRun(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		began, finish := make(chan store.Run, 10), make(chan struct{})
		p, stop := b.openPool(queue.Options{StaleAfter: time.Hour}, func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
			began <- run
			if run.Epoch == 1 {
				<-finish
			}
			return b.finishRun(ctx, run, lease)
		})
		busy := b.startLiveRun(p)
		receiveValue(b, began)
		stop()
		worker, _ := p.AcquireSlot("acme")
		p.ReleaseSlot("acme")
		orphan := b.acceptRun(worker)
		b.runUntil(p, orphan, runRow{store.Completed, 1})
		if got := b.readRow(busy); got != (runRow{store.Running, 1}) {
			b.Errorf("a run at work is %+v", got)
		}
		close(finish)
		b.waitForRow(busy, runRow{store.Completed, 1})
	})
}

// TestOrphanAnsweredLate: a run that was returned because the answer to its acceptance took long is executed once: by
// the worker that claims it, not by the acceptance, whose slot becomes free.
func TestOrphanAnsweredLate(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		began := make(chan store.Run, 10)
		p, stop := b.openPool(queue.Options{StaleAfter: time.Hour, MaxInflight: 1}, func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
			began <- run
			return b.finishRun(ctx, run, lease)
		})
		stop()
		worker, ok := p.AcquireSlot("acme")
		if !ok {
			b.Fatal("no slot")
		}
		late := b.acceptRun(worker)
		b.runUntil(p, late, runRow{store.Completed, 1})
		receiveValue(b, began)
		p.StartRun(late)
		next := b.startLiveRun(p)
		if got := receiveValue(b, began); got.Task != next.Task {
			b.Errorf("began %s, want only %s", got.Task, next.Task)
		}
		b.waitForRow(next, runRow{store.Completed, 1})
	})
}

// runUntil operates the loops of a pool for a short time, again and again, until a run's row is want. Each time the
// heartbeat loop begins a round, so that the test does not wait for the interval between two rounds.
func (fix fixture) runUntil(p *queue.Pool, run store.Run, want runRow) {
	fix.Helper()
	for end := time.Now().Add(testTimeout); fix.readRow(run) != want; {
		if time.Now().After(end) {
			fix.Fatalf("the run is %+v, want %+v", fix.readRow(run), want)
		}
		ctx, cancel := context.WithTimeout(fix.Context(), 1500*time.Millisecond) // one claimInterval and some time
		_ = p.Run(ctx)
		cancel()
	}
}

// TestClaimNotCommitted: the runs of a claim whose commit failed are not started, although the database had returned
// them: no lease would protect them from the worker that claims them next. They are executed once, after a claim that was
// committed.
func TestClaimNotCommitted(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		failed := make(chan string, 100)
		log := slog.New(slog.NewTextHandler(writerFunc(func(line []byte) (int, error) {
			if strings.Contains(string(line), "the queue cannot be read") {
				failed <- string(line)
			}
			return len(line), nil
		}), nil))
		began := make(chan store.Run, 100)
		commit := dbtest.FailCommits(b.T, b.d, "run", "NEW.state = 'running'")
		p, _ := b.openPool(queue.Options{Log: log}, func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
			began <- run
			return b.finishRun(ctx, run, lease)
		})
		queued, awaited := b.acceptRun(""), b.acceptRun("")
		p.WakeClaimers()
		receiveValue(b, failed)
		p.NotifyQueued(store.NewTurn{Run: awaited, Priority: store.PriorityAwaited})
		receiveValue(b, failed)
		commit()
		b.waitForRow(queued, runRow{store.Completed, 1})
		b.waitForRow(awaited, runRow{store.Completed, 1})
		if len(began) != 2 {
			b.Errorf("%d executions began, want one of each run", len(began))
		}
	})
}

// writerFunc is a function as an [io.Writer].
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(line []byte) (int, error) { return f(line) }

// TestEarlierExecutionDropsNothing: a run was returned uncounted while this process still executes it, and is claimed
// here again, as the same attempt. That the earlier execution loses its lease does not end the run of the later one.
func TestEarlierExecutionDropsNothing(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		executions := make(chan store.Run, 10)
		dropped := make(chan struct{})
		var first atomic.Bool
		p, _ := b.openPool(queue.Options{StaleAfter: time.Hour, MaxInflight: 1}, func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
			executions <- run
			if first.CompareAndSwap(false, true) {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			<-dropped
			return b.finishRun(ctx, run, lease)
		})
		run := b.startLiveRun(p)
		receiveValue(b, executions)
		if err := store.NewRunQueue(b.d).ReturnRun(b.Context(), run, store.ReturnOptions{Uncounted: true}); err != nil {
			b.Fatal(err)
		}
		p.WakeClaimers()
		if again := receiveValue(b, executions); again.Attempts != run.Attempts {
			b.Fatalf("it is attempt %d, want %d again", again.Attempts, run.Attempts)
		}
		b.waitUntil("the earlier execution has ended", func() bool { _, ok := p.AcquireSlot("acme"); return ok })
		p.ReleaseSlot("acme")
		close(dropped)
		b.waitForRow(run, runRow{store.Completed, 1})
		if t, err := b.st.Tasks.LoadState(b.Context(), run.Task); err != nil || t.Status.State != agentsvc.Completed {
			b.Errorf("the task is %s (%v)", t.Status.State, err)
		}
		if len(executions) != 0 {
			b.Errorf("%d further executions", len(executions))
		}
	})
}

// TestEarlierAttemptStops: a run returns to a process that still executes an earlier attempt of it: the earlier
// attempt is cancelled, which does not affect the later one.
func TestEarlierAttemptStops(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		began, causes := make(chan store.Run, 10), make(chan error, 10)
		var p *queue.Pool
		p, _ = b.openPool(queue.Options{}, func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
			began <- run
			if run.Attempts > 1 {
				<-causes // the earlier attempt first
				time.Sleep(20 * time.Millisecond)
				if n := p.Inflight(); n != 1 {
					b.Errorf("%d runs are known to be at work, want this one", n)
				}
				return b.finishRun(ctx, run, lease)
			}
			<-ctx.Done()
			defer func() { causes <- nil }()
			return context.Cause(ctx)
		})
		run := b.startLiveRun(p)
		receiveValue(b, began)
		if err := store.NewRunQueue(b.d).ReturnRun(b.Context(), run, store.ReturnOptions{}); err != nil {
			b.Fatal(err)
		}
		p.WakeClaimers()
		b.waitForRow(run, runRow{store.Completed, 2})
	})
}

// TestGivenUp: a run without a recorded end is given up after its last attempt, with its error; one whose worker died
// in the last attempt is not started again. Attempts that failed because the database was unavailable do not count.
func TestGivenUp(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		type end struct {
			attempts int64
			reason   string
		}
		given := make(chan end, 10)
		var tries, failures atomic.Int64
		o := queue.Options{Retry: queue.Retry{MaxRetries: 1, InitialDelay: time.Millisecond, MaxDelay: time.Millisecond}}
		o.GiveUp = func(_ context.Context, run store.Run, reason string) error {
			given <- end{run.Attempts, reason}
			b.cancelTask(run)
			return agentsvc.ErrLeaseLost
		}
		p, _ := b.openPool(o, func(context.Context, store.Run, agentsvc.LeaseCheck) error {
			tries.Add(1)
			if failures.Add(1) <= 2 {
				return db.ErrUnknownOutcome
			}
			return errors.New("cannot begin")
		})
		run := b.acceptRun("")
		p.WakeClaimers()
		if got := receiveValue(b, given); got != (end{2, "cannot begin"}) || tries.Load() != 4 {
			b.Errorf("given up %+v after %d tries, want two that count and two that do not", got, tries.Load())
		}
		b.waitForRow(run, runRow{store.Completed, 2})
		dead := b.acceptRun("dead")
		for range 2 {
			if _, _, err := store.NewRunQueue(b.d).RescueRuns(b.Context(), time.Hour); err != nil {
				b.Fatal(err)
			}
		}
		if err := b.d.Platform().Do(b.Context(), newAttemptsUpdate(dead, 2)); err != nil {
			b.Fatal(err)
		}
		p.WakeClaimers()
		if got := receiveValue(b, given); got.attempts != 2 || tries.Load() != 4 {
			b.Errorf("given up %+v, and begun again: %v", got, tries.Load() != 4)
		}
		b.waitForRow(dead, runRow{store.Completed, 3})
	})
}

// cancelTask ends the task of a run, which then does not wait for it any more.
func (fix fixture) cancelTask(run store.Run) {
	fix.Helper()
	var batch db.Batch
	batch.Exec(nil, "UPDATE task SET state = 'cancelled' WHERE tenant = $1 AND id = $2", string(run.Tenant), string(run.Task))
	if err := fix.d.Platform().Do(context.Background(), &batch); err != nil {
		fix.Error(err)
	}
}

// newAttemptsUpdate sets how many attempts a run has had.
func newAttemptsUpdate(run store.Run, n int64) *db.Batch {
	var batch db.Batch
	batch.Exec(nil, "UPDATE run SET attempts = $3 WHERE tenant = $1 AND task = $2", string(run.Tenant), string(run.Task), n)
	return &batch
}

// TestAwaited: an awaited run that found no live slot gets the next one that becomes free, although all workers of
// the queue are busy.
func TestAwaited(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		began, finish, leaveQueue := make(chan store.Run, 10), make(chan struct{}), make(chan struct{})
		var queued atomic.Pointer[agentsvc.TaskID]
		p, _ := b.openPool(queue.Options{MaxInflight: 1, Workers: 1}, func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
			began <- run
			if of := queued.Load(); of != nil && *of == run.Task {
				<-leaveQueue
			} else {
				<-finish
			}
			return b.finishRun(ctx, run, lease)
		})
		first := b.startLiveRun(p)
		receiveValue(b, began)
		other := b.acceptRun("")
		queued.Store(&other.Task)
		p.NotifyQueued(store.NewTurn{Run: other})
		receiveValue(b, began) // both slots are used
		run := b.acceptRun("")
		p.NotifyQueued(store.NewTurn{Run: run, Priority: store.PriorityAwaited})
		finish <- struct{}{}
		if got := receiveValue(b, began); got.Task != run.Task {
			b.Errorf("began %s, want %s", got.Task, run.Task)
		}
		finish <- struct{}{}
		close(leaveQueue)
		for _, r := range []store.Run{first, other, run} {
			b.waitForRow(r, runRow{store.Completed, 1})
		}
	})
}

// TestFloodedQueue: however many runs of one tenant wait, the single run of another one is next.
func TestFloodedQueue(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		const workers = 2
		begun, finish := make(chan store.Run), make(chan struct{})
		handle := func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
			begun <- run
			<-finish
			return fixture{b.T, b.d, store.New(b.d, run.Tenant)}.finishRun(ctx, run, lease)
		}
		for range 40 {
			b.acceptRun("")
		}
		p, _ := b.openPool(queue.Options{Workers: workers}, handle)
		p.WakeClaimers()
		for range workers {
			<-begun
		}
		quiet := fixture{b.T, b.d, store.New(b.d, "quiet")}
		run := quiet.acceptRunOf("quiet", "")
		for before := 0; ; before++ {
			finish <- struct{}{}
			if got := receiveValue(b, begun); got.Task == run.Task {
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
		close(finish)
		quiet.waitForRow(run, runRow{store.Completed, 1})
		for end := time.Now().Add(testTimeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if st, err := queuestats.Count(b.Context(), b.d); err == nil && st.Pending+st.Running == 0 {
				break
			}
		}
		close(begun)
	})
}

// TestWoken: a process that was suspended for longer than its lease accepts nothing until it has renewed it, and
// cancels what others have rescued meanwhile.
func TestWoken(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		began, causes := make(chan store.Run, 10), make(chan error, 10)
		p, _ := b.openPool(queue.Options{StaleAfter: 6 * time.Second}, func(ctx context.Context, run store.Run, _ agentsvc.LeaseCheck) error {
			began <- run
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return context.Cause(ctx)
		})
		b.startLiveRun(p)
		receiveValue(b, began)
		worker, _ := p.AcquireSlot("acme")
		p.ReleaseSlot("acme")
		for rescued := int64(0); rescued == 0; { // others count it as dead, unless a heartbeat comes in between
			var gone db.Batch
			gone.Exec(nil, "DELETE FROM worker WHERE id = $1", worker)
			err := b.d.Platform().Do(b.Context(), &gone)
			if err == nil {
				rescued, _, err = store.NewRunQueue(b.d).RescueRuns(b.Context(), time.Hour)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		if runs, err := store.NewRunQueue(b.d).ClaimRuns(b.Context(), "other", []store.Share{{Tenant: "acme", ClaimCount: 1}}); err != nil || len(runs) > 1 {
			b.Fatalf("another claimed %d runs (%v)", len(runs), err)
		}
		if cause := receiveValue(b, causes); !errors.Is(cause, agentsvc.ErrLeaseLost) {
			b.Errorf("stopped because %v", cause)
		}
	})
}
