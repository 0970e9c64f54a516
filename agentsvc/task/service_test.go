package task_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stoa/agentsvc"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/signal"
)

var (
	ana = agentsvc.Owner{Issuer: "stoa", Subject: "ana"}
	bob = agentsvc.Owner{Issuer: "stoa", Subject: "bob"}
	all = store.TaskParts{History: true, Artifacts: true}
)

// runWork is a run that a handler executes.
type runWork struct {
	context.Context
	*task.Recorder
	run store.Run
}

func (w *runWork) recordMessage(text string) error {
	return w.RecordFacts(w, store.Record{Events: []agentsvc.Event{{Message: w.newMessage(text)}}})
}

func (w *runWork) recordEnd(state agentsvc.State, text string) error {
	end := store.Completed
	if state.IsInterrupted() {
		end = store.InputRequired
	}
	return w.RecordFacts(w, store.Record{Events: []agentsvc.Event{{Status: &agentsvc.Status{State: state, Message: w.newMessage(text)}}}, EndState: end})
}

func (w *runWork) newMessage(text string) *agentsvc.Message {
	return &agentsvc.Message{ID: agentsvc.MessageID(agentsvc.NewID()), Task: w.run.Task, Role: agentsvc.RoleAgent, Parts: []agentsvc.Part{agentsvc.TextPart(text)}}
}

// process is one of the processes that serve a tenant.
type process struct {
	*task.Service
	hub  *task.Hub
	pool *queue.Pool
	st   *store.Store
	bus  *signal.Bus
}

// startProcess opens a process whose runs are executed by handle.
func startProcess(t *testing.T, d *db.DB, handle func(w *runWork) error, options ...task.Options) *process {
	t.Helper()
	return joinProcess(t, d, nil, handle, options...)
}

// joinProcess opens a process that bus connects with others. Without handle it accepts runs and executes none.
func joinProcess(t *testing.T, d *db.DB, bus *signal.Bus, handle func(w *runWork) error, options ...task.Options) *process {
	t.Helper()
	o := append(options, task.Options{})[0]
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	p := &process{hub: task.NewHub(bus), st: store.New(d, "acme"), bus: bus}
	p.pool = queue.New(d, func(ctx context.Context, run store.Run, _ agentsvc.LeaseCheck) error {
		rec := p.Recorders.New(&run, nil)
		defer rec.Close()
		if run.Epoch == 0 {
			if err := rec.BeginRun(ctx); err != nil {
				return err
			}
		}
		return handle(&runWork{ctx, rec, run})
	}, queue.Options{Log: quiet, Bus: bus, Calls: p.hub, AcceptOnly: handle == nil})
	p.Service = task.New(p.st, "acme", 7, p.hub, p.pool, quiet, o)
	if err := p.pool.Open(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := p.pool.Drain(ctx); err != nil {
			t.Errorf("drain: %v", err)
		}
		if n := p.hub.CountTopics(); n != 0 {
			t.Errorf("%d topics are left in the hub", n)
		}
	})
	return p
}

// startClaiming makes the process claim from the queue as well.
func (p *process) startClaiming(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.pool.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

func newSubmission(text string) task.Submission {
	return task.Submission{Agent: "assistant", Owner: ana, Message: agentsvc.Message{Parts: []agentsvc.Part{agentsvc.TextPart(text)}}}
}

func newReply(t agentsvc.Task, text string) task.Submission {
	sub := newSubmission(text)
	sub.Message.Task = t.ID
	return sub
}

// withTimeout returns a context for a stream that ends.
func withTimeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// drainStream reads a stream to its end and returns its facts, and its chunks joined by message.
func drainStream(t *testing.T, evs iter.Seq2[agentsvc.Event, error]) (facts []agentsvc.Event, chunks map[agentsvc.MessageID]string) {
	t.Helper()
	chunks = map[agentsvc.MessageID]string{}
	for ev, err := range evs {
		if err != nil {
			t.Fatalf("after %d facts: %v", len(facts), err)
		}
		if c := ev.Chunk; c == nil {
			facts = append(facts, ev)
		} else if chunks[c.Message] += c.Text; len(chunks[c.Message]) != c.Offset+len(c.Text) {
			t.Fatalf("a chunk at %d after %q", c.Offset, chunks[c.Message])
		}
	}
	return facts, chunks
}

func (p *process) readLog(t *testing.T, id agentsvc.TaskID) []agentsvc.Event {
	t.Helper()
	evs, err := p.st.Events.Load(t.Context(), nil, id, 0, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	return evs
}

// requireLog compares the facts that a reader received with the log after sequence after.
func (p *process) requireLog(t *testing.T, id agentsvc.TaskID, after int, got []agentsvc.Event) {
	t.Helper()
	if diff := cmp.Diff(p.readLog(t, id)[after:], got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("log after %d -, got +\n%s", after, diff)
	}
}

func runChatty(w *runWork) error {
	m := w.newMessage("one two three")
	for i, word := range []string{"one ", "two ", "three"} {
		w.PublishChunk(agentsvc.Chunk{Message: m.ID, Offset: 4 * i, Text: word})
	}
	facts := []agentsvc.Event{
		{Usage: &agentsvc.Usage{Model: "m", InputTokens: 3}}, {Message: m},
		{Result: &agentsvc.ToolResult{Call: "c", Name: "n", Text: "x"}},
		{Artifact: &agentsvc.ArtifactUpdate{Artifact: agentsvc.Artifact{ID: "a", Parts: []agentsvc.Part{agentsvc.TextPart("z")}}}},
	}
	for _, ev := range facts {
		if err := w.RecordFacts(w, store.Record{Events: []agentsvc.Event{ev}}); err != nil {
			return err
		}
	}
	return w.recordEnd(agentsvc.Completed, "done")
}

// TestCall: a waiting caller receives submitted, working, the chunks and every fact in order, and then the stream
// ends.
func TestCall(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		p := startProcess(t, d, runChatty)
		got, evs, err := p.Messages.SubmitAndFollow(withTimeout(t), newSubmission("hi"))
		if err != nil {
			t.Fatal(err)
		}
		if got.Status.State != agentsvc.Working || got.Seq != 2 || got.Owner != ana || got.Agent != "assistant" || got.Context == "" {
			t.Errorf("accepted as %+v", got)
		}
		facts, chunks := drainStream(t, evs)
		p.requireLog(t, got.ID, 0, facts)
		if len(facts) != 7 || len(chunks) != 1 {
			t.Errorf("%d facts and chunks of %d messages, want 7 and 1", len(facts), len(chunks))
		}
		for _, text := range chunks {
			if text != "one two three" {
				t.Errorf("the chunks read %q", text)
			}
		}
		for _, ev := range facts {
			got.ApplyEvent(ev)
		}
		stored, err := p.Reader.Get(t.Context(), task.Visibility{}, got.ID, all)
		if diff := cmp.Diff(stored, got); err != nil || diff != "" {
			t.Errorf("stored -, folded from what was got + (%v)\n%s", err, diff)
		}
	})
}

// TestSlowReader: a reader who reads nothing until the task has ended, and whose queue has overflowed, misses no fact
// and receives no text twice.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	const messages = 400
	over := make(chan struct{})
	p := startProcess(t, dbtest.NewSQLite(t), func(w *runWork) error {
		defer close(over)
		for i := range messages {
			m := w.newMessage(fmt.Sprint("message ", i))
			for j, r := range m.Parts[0].Text {
				w.PublishChunk(agentsvc.Chunk{Message: m.ID, Offset: j, Text: string(r)})
			}
			if err := w.RecordFacts(w, store.Record{Events: []agentsvc.Event{{Message: m}}}); err != nil {
				return err
			}
		}
		return w.recordEnd(agentsvc.Completed, "done")
	})
	got, evs, err := p.Messages.SubmitAndFollow(withTimeout(t), newSubmission("hi"))
	if err != nil {
		t.Fatal(err)
	}
	reported := map[agentsvc.MessageID]bool{}
	facts, _ := drainStream(t, func(yield func(agentsvc.Event, error) bool) {
		for ev, err := range evs {
			if ev.Seq == 3 {
				<-over
			}
			if ev.Message != nil {
				reported[ev.Message.ID] = true
			}
			if ev.Chunk != nil && reported[ev.Chunk.Message] {
				t.Errorf("a chunk of a message that was sent already: %q", ev.Chunk.Text)
			}
			if !yield(ev, err) {
				return
			}
		}
	})
	p.requireLog(t, got.ID, 0, facts)
	if len(facts) != messages+3 {
		t.Errorf("%d facts, want %d", len(facts), messages+3)
	}
}

// TestFollow: from any sequence on, while the task executes and after its end, the facts that a reader receives are
// those of the log.
func TestFollow(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		step := make(chan struct{})
		p := startProcess(t, d, func(w *runWork) error { <-step; return runChatty(w) })
		got, err := p.Messages.Submit(t.Context(), withAwaited(newSubmission("hi")))
		if err != nil {
			t.Fatal(err)
		}
		type reading struct {
			after int64
			facts []agentsvc.Event
		}
		readings := make(chan reading)
		ask := []int64{-3, 0, 1, 2, 99}
		for _, after := range ask {
			snapshot, evs, err := p.Reader.Follow(withTimeout(t), task.Visibility{Owner: &ana}, got.ID, &after)
			if err != nil || snapshot.Status.State != agentsvc.Working || snapshot.Seq != 2 {
				t.Fatalf("follow after %d: %+v (%v)", after, snapshot, err)
			}
			go func() {
				facts, _ := drainStream(t, evs)
				readings <- reading{after, facts}
			}()
		}
		close(step)
		for range ask {
			r := <-readings
			p.requireLog(t, got.ID, int(max(0, min(r.after, 2))), r.facts) // a sequence beyond the log
		}
		for after := range int64(9) {
			_, evs, err := p.Reader.Follow(withTimeout(t), task.Visibility{}, got.ID, &after)
			if err != nil {
				t.Fatal(err)
			}
			facts, _ := drainStream(t, evs)
			p.requireLog(t, got.ID, int(min(after, 7)), facts)
		}
		snapshot, evs, err := p.Reader.Follow(withTimeout(t), task.Visibility{}, got.ID, nil)
		if facts, _ := drainStream(t, evs); err != nil || len(facts) != 0 || snapshot.Status.State != agentsvc.Completed {
			t.Errorf("an ended task is followed by %v (%v)", facts, err)
		}
	})
}

func withAwaited(sub task.Submission) task.Submission {
	sub.Awaited = true
	return sub
}

// TestElsewhere: a task that executes in another process is followed by its log.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		steps := make(chan struct{})
		here := startProcess(t, d, func(w *runWork) error {
			for i := range 3 {
				<-steps
				if err := w.recordMessage(fmt.Sprint(i)); err != nil {
					return err
				}
			}
			return w.recordEnd(agentsvc.Completed, "done")
		})
		there := startProcess(t, d, runChatty)
		got, err := here.Messages.Submit(t.Context(), withAwaited(newSubmission("hi")))
		if err != nil {
			t.Fatal(err)
		}
		_, evs, err := there.Reader.Follow(withTimeout(t), task.Visibility{}, got.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		var facts []agentsvc.Event
		next, stop := iter.Pull2(evs)
		defer stop()
		for range 3 {
			steps <- struct{}{}
			ev, err, ok := next()
			if !ok || err != nil {
				t.Fatalf("after %d facts: %v", len(facts), err)
			}
			facts = append(facts, ev)
		}
		ev, err, _ := next()
		if _, _, more := next(); err != nil || more {
			t.Errorf("the end: %v, %v; more: %v", ev, err, more)
		}
		here.requireLog(t, got.ID, 2, append(facts, ev))
	})
}

// TestClaimedElsewhere: a run leaves this process without an end and another process finishes the task; a reader here
// receives that end.
func TestClaimedElsewhere(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	finish := make(chan struct{})
	here := startProcess(t, d, func(*runWork) error { <-finish; return agentsvc.ErrLeaseLost })
	there := startProcess(t, d, runChatty)
	_, evs, err := here.Messages.SubmitAndFollow(withTimeout(t), newSubmission("hi"))
	if err != nil {
		t.Fatal(err)
	}
	next, stop := iter.Pull2(evs)
	defer stop()
	for range 2 {
		if _, err, ok := next(); err != nil || !ok {
			t.Fatal(err)
		}
	}
	go func() {
		time.Sleep(50 * time.Millisecond) // the reader waits for events of the local run
		runs := store.NewRunQueue(d)
		if _, _, err := runs.RescueRuns(context.Background(), -time.Hour); err != nil {
			t.Error(err)
		}
		claimed, err := runs.ClaimRuns(context.Background(), "there", []store.Share{{Tenant: "acme", ClaimCount: 1}})
		if err != nil || len(claimed) != 1 {
			t.Errorf("claimed %v (%v)", claimed, err)
			close(finish)
			return
		}
		received := claimed[0]
		rec := there.Recorders.New(&received, nil)
		defer rec.Close()
		if err := errors.Join(rec.BeginRun(context.Background()), (&runWork{context.Background(), rec, received}).recordEnd(agentsvc.Completed, "done")); err != nil {
			t.Error(err)
		}
		close(finish)
	}()
	ev, err, _ := next()
	if err != nil || ev.Attempt == nil || !ev.Attempt.CutOff {
		t.Errorf("got %+v (%v), want the attempt there", ev, err)
	}
	if ev, err, _ = next(); err != nil || ev.Status == nil || ev.Status.State != agentsvc.Completed {
		t.Errorf("got %+v (%v), want the end", ev, err)
	}
}

// TestReaderLeaves: nothing of a reader remains in the hub, however it leaves.
func TestReaderLeaves(t *testing.T) {
	t.Parallel()
	finish := make(chan struct{})
	p := startProcess(t, dbtest.NewSQLite(t), func(w *runWork) error {
		<-finish
		return w.recordEnd(agentsvc.Completed, "done")
	})
	defer close(finish)
	ctx, cancel := context.WithCancel(t.Context())
	got, evs, err := p.Messages.SubmitAndFollow(ctx, newSubmission("hi"))
	if err != nil {
		t.Fatal(err)
	}
	for range evs {
		break
	}
	_, unread, err := p.Messages.SubmitAndFollow(ctx, newSubmission("nobody ranges over this"))
	if err != nil {
		t.Fatal(err)
	}
	_ = unread
	_, follow, err := p.Reader.Follow(ctx, task.Visibility{}, got.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	for ev, err := range follow {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %+v, %v; want the end of the context", ev, err)
		}
	}
	// The runs are still registered as writers; the hub is checked when the process stops.
}

// TestCancel: cancelling ends a task in every state and stops the run that executes it at once.
func TestCancel(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		causes := make(chan error, 1)
		p := startProcess(t, d, func(w *runWork) error {
			if w.run.Message.Text() == "ask" {
				return w.recordEnd(agentsvc.InputRequired, "which?")
			}
			<-w.Done()
			causes <- context.Cause(w)
			return w.recordMessage("too late")
		})
		pending, err := p.Messages.Submit(t.Context(), newSubmission("later"))
		if err != nil {
			t.Fatal(err)
		}
		_, evs, err := p.Messages.SubmitAndFollow(withTimeout(t), newSubmission("ask"))
		if err != nil {
			t.Fatal(err)
		}
		var waiting agentsvc.TaskID
		for ev, err := range evs {
			if waiting = ev.Task; err != nil || ev.Status.State.IsInterrupted() {
				break
			}
		}
		running, evs, err := p.Messages.SubmitAndFollow(withTimeout(t), newSubmission("work"))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []agentsvc.TaskID{pending.ID, waiting, running.ID} {
			got, err := p.Canceller.Cancel(t.Context(), task.Visibility{Owner: &ana}, id)
			if err != nil || got.Status.State != agentsvc.Cancelled {
				t.Fatalf("cancel: %+v (%v)", got, err)
			}
			stored, err := p.Reader.Get(t.Context(), task.Visibility{}, id, all)
			if diff := cmp.Diff(stored, got); err != nil || diff != "" {
				t.Errorf("stored -, returned + (%v)\n%s", err, diff)
			}
			if _, err := p.Canceller.Cancel(t.Context(), task.Visibility{}, id); !errors.Is(err, agentsvc.ErrTaskEnded) {
				t.Errorf("cancel once more: %v", err)
			}
		}
		if cause := <-causes; !errors.Is(cause, agentsvc.ErrLeaseLost) {
			t.Errorf("the worker stopped because %v", cause)
		}
		facts, _ := drainStream(t, evs)
		p.requireLog(t, running.ID, 0, facts)
		if last := facts[len(facts)-1]; last.Status == nil || last.Status.State != agentsvc.Cancelled {
			t.Errorf("the caller last got %+v", last)
		}
	})
}

// TestReach: a task that is not visible is answered like one that does not exist, by every method.
func TestReach(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		p := startProcess(t, d, func(w *runWork) error { return w.recordEnd(agentsvc.InputRequired, "which?") })
		got, evs, err := p.Messages.SubmitAndFollow(withTimeout(t), newSubmission("hi"))
		if err != nil {
			t.Fatal(err)
		}
		for ev := range evs {
			if ev.Status != nil && ev.Status.State.IsInterrupted() {
				break
			}
		}
		before := len(p.readLog(t, got.ID))
		sameSubject := agentsvc.Owner{Issuer: "other", Subject: "ana"}
		for _, c := range []struct {
			name  string
			reach task.Visibility
			id    agentsvc.TaskID
		}{
			{"unknown", task.Visibility{}, agentsvc.TaskID(agentsvc.NewID())},
			{"no id", task.Visibility{}, ""},
			{"an odd id", task.Visibility{}, "a\x00b"},
			{"an id that is no text", task.Visibility{}, "\xff"},
			{"a long id", task.Visibility{}, agentsvc.TaskID(strings.Repeat("x", 100_000))},
			{"another owner", task.Visibility{Owner: &bob}, got.ID},
			{"another issuer", task.Visibility{Owner: &sameSubject}, got.ID},
			{"another agent", task.Visibility{Agents: []string{"other"}, Owner: &ana}, got.ID},
			{"no agent", task.Visibility{Agents: []string{}, Owner: &ana}, got.ID},
		} {
			t.Run(c.name, func(t *testing.T) {
				ctx := t.Context()
				_, err := p.Reader.Get(ctx, c.reach, c.id, all)
				requireNotFound(t, "get", err)
				_, _, err = p.Reader.Follow(ctx, c.reach, c.id, nil)
				requireNotFound(t, "follow", err)
				_, err = p.Canceller.Cancel(ctx, c.reach, c.id)
				requireNotFound(t, "cancel", err)
				sub := newSubmission("answer")
				sub.Message.Task, sub.Agent = c.id, "other"
				if c.reach.Owner != nil {
					sub.Owner = *c.reach.Owner
				}
				if c.id != "" { // the message opens a task
					_, err = p.Messages.Submit(ctx, sub)
					requireNotFound(t, "answer", err)
				}
			})
		}
		if got := len(p.readLog(t, got.ID)); got != before {
			t.Errorf("the log grew from %d to %d", before, got)
		}
	})
}

func requireNotFound(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || err.Error() != agentsvc.ErrNotFound.Error() || !errors.Is(err, agentsvc.ErrNotFound) {
		t.Errorf("%s: %v, want exactly %q", what, err, agentsvc.ErrNotFound)
	}
}
