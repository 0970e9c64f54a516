package task_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/signal"
)

// withConnectedProcesses runs f with a database and a function that opens connected processes on it: once over
// PostgreSQL, and once over Redis, which also carries chunks.
func withConnectedProcesses(t *testing.T, f func(t *testing.T, text bool, open func(func(w *runWork) error) *process)) {
	t.Parallel()
	run := func(name string, text bool, link func(t *testing.T, d *db.DB) signal.Link) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := dbtest.NewPostgres(t)
			f(t, text, func(handle func(w *runWork) error) *process {
				bus := signal.New(link(t, d), slog.New(slog.DiscardHandler))
				ctx, cancel := context.WithCancel(context.Background())
				up, done := make(chan struct{}, 10), make(chan struct{})
				stop := bus.WatchTopic("up", func(string) { up <- struct{}{} })
				p := joinProcess(t, d, bus, handle)
				go func() { defer close(done); _ = bus.Run(ctx) }()
				t.Cleanup(func() { cancel(); <-done })
				<-up
				stop()
				p.startClaiming(t)
				return p
			})
		})
	}
	run("postgres", false, func(_ *testing.T, d *db.DB) signal.Link { return signal.NewPostgresLink(d.URL()) })
	run("redis", true, func(t *testing.T, d *db.DB) signal.Link {
		o, err := redis.ParseURL(dbtest.RequireRedisURL(t))
		if err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(o)
		t.Cleanup(func() { _ = client.Close() })
		return signal.NewRedisLink(client, d.URL())
	})
}

// requirePromptDelivery fails the test unless half of the remote deliveries took less than 100 ms plus what a loaded
// machine adds: three times the duration of the same deliveries within one process.
func requirePromptDelivery(t *testing.T, elsewhere, here []time.Duration) {
	t.Helper()
	slices.Sort(elsewhere)
	slices.Sort(here)
	half, local := elsewhere[len(elsewhere)/2], here[len(here)/2]
	t.Logf("received elsewhere within %v, half of them within %v, and of those in one process within %v", elsewhere[len(elsewhere)-1], half, local)
	if half > 100*time.Millisecond+3*local {
		t.Errorf("half were received elsewhere within %v, in one process within %v", half, local)
	}
}

// TestFactsReachRemoteReaders: a reader in another process is signalled each fact long before it would poll. Where
// chunks are carried, it sees a message from its start, however late it subscribed.
func TestFactsReachRemoteReaders(t *testing.T) {
	withConnectedProcesses(t, func(t *testing.T, text bool, open func(func(w *runWork) error) *process) {
		step := make(chan struct{})
		here := open(func(w *runWork) error {
			m := w.newMessage("one two")
			w.PublishChunk(agentsvc.Chunk{Message: m.ID, Text: "one "})
			<-step
			w.PublishChunk(agentsvc.Chunk{Message: m.ID, Offset: 4, Text: "two"})
			<-step
			if err := w.RecordFacts(w, store.Record{Events: []agentsvc.Event{{Message: m}}}); err != nil {
				return err
			}
			for range 20 {
				<-step
				if err := w.recordMessage("fact"); err != nil {
					return err
				}
			}
			return w.recordEnd(agentsvc.Completed, "done")
		})
		there := open(runChatty)
		got, err := here.Messages.Submit(t.Context(), withAwaited(newSubmission("hi")))
		if err != nil {
			t.Fatal(err)
		}
		var readers []func() (agentsvc.Event, error, bool)
		for range 2 { // the second is sent while the first is stored
			_, evs, err := there.Reader.Follow(withTimeout(t), task.Visibility{}, got.ID, nil)
			if err != nil {
				t.Fatal(err)
			}
			next, stop := iter.Pull2(evs)
			defer stop()
			readers = append(readers, next)
			if text {
				if ev, err, _ := next(); err != nil || ev.Chunk == nil || ev.Chunk.Offset != 0 || ev.Chunk.Text != "one " {
					t.Fatalf("who comes in the middle got %+v, %v; want the message from its start", ev, err)
				}
			}
		}
		step <- struct{}{}
		for _, next := range readers {
			if text {
				if ev, err, _ := next(); err != nil || ev.Chunk == nil || ev.Chunk.Offset != 4 || ev.Chunk.Text != "two" {
					t.Fatalf("got %+v, %v; want the next words", ev, err)
				}
			}
		}
		step <- struct{}{}
		for _, next := range readers {
			if ev, err, _ := next(); err != nil || ev.Message == nil || ev.Seq != 3 {
				t.Fatalf("got %+v, %v; want the whole message", ev, err)
			}
		}
		_, evs, err := here.Reader.Follow(withTimeout(t), task.Visibility{}, got.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		local, stop := iter.Pull2(evs)
		defer stop()
		var took, ours []time.Duration
		for range 20 {
			time.Sleep(150 * time.Millisecond) // so that polling is rare
			began := time.Now()
			step <- struct{}{}
			for i, next := range append([]func() (agentsvc.Event, error, bool){local}, readers...) {
				if ev, err, _ := next(); err != nil || ev.Message == nil {
					t.Fatalf("got %+v, %v; want a fact", ev, err)
				}
				if i == 0 {
					ours = append(ours, time.Since(began))
				}
			}
			took = append(took, time.Since(began))
		}
		requirePromptDelivery(t, took, ours)
		for _, next := range readers {
			if ev, err, _ := next(); err != nil || ev.Status == nil || ev.Status.State != agentsvc.Completed {
				t.Errorf("got %+v, %v; want the end", ev, err)
			}
		}
	})
}

// TestCancelElsewhere: a task that is cancelled through another process stops at once, with the cancellation as its
// cause.
func TestCancelElsewhere(t *testing.T) {
	withConnectedProcesses(t, func(t *testing.T, _ bool, open func(func(w *runWork) error) *process) {
		causes := make(chan error, 1)
		here := open(func(w *runWork) error {
			<-w.Done()
			causes <- context.Cause(w)
			return context.Cause(w)
		})
		there := open(runChatty)
		var stopped, reported []time.Duration
		for range 5 {
			got, evs, err := here.Messages.SubmitAndFollow(withTimeout(t), newSubmission("hi"))
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if _, err := there.Canceller.Cancel(t.Context(), task.Visibility{}, got.ID); err != nil {
				t.Fatal(err)
			}
			cause := <-causes
			var cancelled *agentsvc.CallCancelledError
			stopped = append(stopped, time.Since(began))
			if !errors.Is(cause, agentsvc.ErrLeaseLost) || !errors.As(cause, &cancelled) {
				t.Errorf("stopped because of %v, want as cancelled", cause)
			}
			facts, _ := drainStream(t, evs)
			here.requireLog(t, got.ID, 0, facts)
			reported = append(reported, time.Since(began))
		}
		slices.Sort(stopped)
		slices.Sort(reported)
		if stopped[2] > time.Second || reported[2] > time.Second {
			t.Errorf("most stopped within %v, and who listens where they ran knew within %v; want at once", stopped[2], reported[2])
		}
	})
}

// TestCancelCallElsewhere: a call in progress can be cancelled from any process, and one that is not in progress is
// not found in any.
func TestCancelCallElsewhere(t *testing.T) {
	withConnectedProcesses(t, func(t *testing.T, _ bool, open func(func(w *runWork) error) *process) {
		begun := make(chan struct{})
		here := open(func(w *runWork) error {
			m := w.newMessage("")
			m.ToolCalls = []agentsvc.ToolCall{{ID: "c1", Name: "nap"}, {ID: "c2", Name: "nap"}}
			if err := w.RecordFacts(w, store.Record{Events: []agentsvc.Event{{Message: m}}}); err != nil {
				return err
			}
			result := func(call agentsvc.CallID, text string) error {
				return w.RecordFacts(w, store.Record{Events: []agentsvc.Event{{Result: &agentsvc.ToolResult{Call: call, Name: "nap", Text: text}}}})
			}
			if err := result("c2", "done"); err != nil {
				return err
			}
			ctx, stop := context.WithCancelCause(w)
			defer stop(nil)
			begun <- struct{}{}
			<-begun // the request may be stored before the call begins
			over := w.RegisterCall("c1", stop)
			<-ctx.Done()
			over()
			if err := result("c1", context.Cause(ctx).Error()); err != nil {
				return err
			}
			return w.recordEnd(agentsvc.Completed, "done")
		})
		there := open(runChatty)
		for _, early := range []bool{false, true} {
			got, evs, err := here.Messages.SubmitAndFollow(withTimeout(t), newSubmission("hi"))
			if err != nil {
				t.Fatal(err)
			}
			<-begun
			for _, id := range []agentsvc.CallID{"c2", "c3", "\x00"} {
				if err := there.Canceller.CancelCall(t.Context(), task.Visibility{}, got.ID, id, ""); !errors.Is(err, agentsvc.ErrNotFound) {
					t.Errorf("cancel %q: %v, want not found", id, err)
				}
			}
			if err := there.Canceller.CancelCall(t.Context(), task.Visibility{Owner: &bob}, got.ID, "c1", ""); !errors.Is(err, agentsvc.ErrNotFound) {
				t.Errorf("cancel of another's call: %v, want not found", err)
			}
			if !early {
				begun <- struct{}{}
			} else {
				time.AfterFunc(100*time.Millisecond, func() { begun <- struct{}{} })
			}
			began := time.Now()
			if err := there.Canceller.CancelCall(t.Context(), task.Visibility{}, got.ID, "c1", "enough"); err != nil {
				t.Errorf("cancel a running call: %v", err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("cancel took %v", took)
			}
			facts, _ := drainStream(t, evs)
			here.requireLog(t, got.ID, 0, facts)
			if r := facts[len(facts)-2].Result; r == nil || r.Text != (&agentsvc.CallCancelledError{Reason: "enough"}).Error() {
				t.Errorf("the call resulted in %+v", r)
			}
			for _, p := range []*process{here, there} {
				if err := p.Canceller.CancelCall(t.Context(), task.Visibility{}, got.ID, "c1", ""); !errors.Is(err, agentsvc.ErrNotFound) {
					t.Errorf("cancel a call that has ended: %v, want not found", err)
				}
			}
		}
	})
}

// TestWorkElsewhere: a run that is accepted by a process without workers is claimed at once by another one, and its
// caller receives all events.
func TestWorkElsewhere(t *testing.T) {
	withConnectedProcesses(t, func(t *testing.T, text bool, open func(func(w *runWork) error) *process) {
		web := open(nil)
		var worker *process
		for range 4 {
			worker = open(runChatty)
		}
		var took, local []time.Duration
		for range 50 {
			began := time.Now()
			got, evs, err := web.Messages.SubmitAndFollow(withTimeout(t), newSubmission("hi"))
			if err != nil {
				t.Fatal(err)
			}
			var facts []agentsvc.Event
			for ev, err := range evs {
				if err != nil {
					t.Fatal(err)
				}
				if ev.Status != nil && ev.Status.State == agentsvc.Working {
					took = append(took, time.Since(began))
				}
				if ev.Chunk == nil {
					facts = append(facts, ev)
				}
			}
			web.requireLog(t, got.ID, 0, facts)
			began = time.Now()
			if _, evs, err = worker.Messages.SubmitAndFollow(withTimeout(t), newSubmission("hi")); err != nil {
				t.Fatal(err)
			}
			drainStream(t, evs)
			local = append(local, time.Since(began))
		}
		requirePromptDelivery(t, took, local)
	})
}

// TestQuiet: a call that executes in its caller's process sends nothing to other processes.
func TestQuiet(t *testing.T) {
	withConnectedProcesses(t, func(t *testing.T, _ bool, open func(func(w *runWork) error) *process) {
		reservation := make(chan struct{})
		here, there := open(func(w *runWork) error { <-reservation; return runChatty(w) }), open(runChatty)
		got, err := here.Messages.Submit(t.Context(), withAwaited(newSubmission("hi")))
		if err != nil {
			t.Fatal(err)
		}
		_, evs, err := there.Reader.Follow(withTimeout(t), task.Visibility{}, got.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		next, stop := iter.Pull2(evs)
		heard := make(chan struct{})
		go func() { _, _, _ = next(); close(heard) }()
		for end := time.Now().Add(testTimeout); !here.bus.HasFollowers(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Error("one who listens elsewhere is not known")
				break
			}
		}
		close(reservation)
		<-heard
		stop()
		// A reader whose run does not begin within 50 ms follows the other processes, since one of them may execute it. So
		// the check is repeated while the machine is slower than that.
		for range 20 {
			slowest := time.Duration(0)
			for range 10 {
				began := time.Now()
				_, evs, err := here.Messages.SubmitAndFollow(withTimeout(t), newSubmission("hi"))
				if err != nil {
					t.Fatal(err)
				}
				drainStream(t, evs)
				slowest = max(slowest, time.Since(began))
			}
			here.bus.Flush(t.Context())
			if !there.bus.HasFollowers() {
				return
			}
			if slowest < 50*time.Millisecond {
				t.Fatalf("a call in one process was announced to another; the slowest took %v", slowest)
			}
			dbtest.WaitUntil(t, "the process is not followed any more", func() bool { return !there.bus.HasFollowers() })
		}
		t.Error("no ten calls began within 50 ms each: nothing was checked")
	})
}
