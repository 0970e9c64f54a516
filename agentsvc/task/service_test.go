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
	all = store.With{History: true, Artifacts: true}
)

// work is a run under the hands of a handler.
type work struct {
	context.Context
	*task.Recorder
	run store.Run
}

func (w *work) say(text string) error {
	return w.Record(w, store.Record{Events: []agentsvc.Event{{Message: w.message(text)}}})
}

func (w *work) end(state agentsvc.State, text string) error {
	end := store.Completed
	if state.Interrupted() {
		end = store.InputRequired
	}
	return w.Record(w, store.Record{Events: []agentsvc.Event{{Status: &agentsvc.Status{State: state, Message: w.message(text)}}}, End: end})
}

func (w *work) message(text string) *agentsvc.Message {
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

// start opens a process whose runs handle does.
func start(t *testing.T, d *db.DB, handle func(w *work) error, options ...task.Options) *process {
	t.Helper()
	return join(t, d, nil, handle, options...)
}

// join opens a process that bus connects with others. Without handle it accepts and does not work.
func join(t *testing.T, d *db.DB, bus *signal.Bus, handle func(w *work) error, options ...task.Options) *process {
	t.Helper()
	o := append(options, task.Options{})[0]
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	p := &process{hub: task.NewHub(bus), st: store.New(d, "acme"), bus: bus}
	p.pool = queue.New(store.NewRuns(d), func(ctx context.Context, run store.Run) error {
		rec := p.Recorder(&run)
		defer rec.Close()
		if run.Epoch == 0 {
			if err := rec.Begin(ctx); err != nil {
				return err
			}
		}
		return handle(&work{ctx, rec, run})
	}, queue.Options{Log: quiet, Bus: bus, Calls: p.hub, Idle: handle == nil})
	p.Service = task.New(p.st, "acme", 7, p.hub, p.pool, quiet, o)
	if err := p.pool.Open(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := p.pool.Drain(ctx); err != nil {
			t.Errorf("drain: %v", err)
		}
		if n := p.hub.Topics(); n != 0 {
			t.Errorf("%d topics are left in the hub", n)
		}
	})
	return p
}

// claims has the process claim from the queue as well.
func (p *process) claims(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.pool.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

func send(text string) task.Submission {
	return task.Submission{Agent: "assistant", Owner: ana, Message: agentsvc.Message{Parts: []agentsvc.Part{agentsvc.TextPart(text)}}}
}

func answer(t agentsvc.Task, text string) task.Submission {
	sub := send(text)
	sub.Message.Task = t.ID
	return sub
}

// within is a context for a stream that ends.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// drain reads a stream to its end and returns its facts, and its chunks joined by message.
func drain(t *testing.T, evs iter.Seq2[agentsvc.Event, error]) (facts []agentsvc.Event, chunks map[agentsvc.MessageID]string) {
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

func (p *process) log(t *testing.T, id agentsvc.TaskID) []agentsvc.Event {
	t.Helper()
	evs, err := p.st.Events(t.Context(), id, 0, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	return evs
}

// told compares what a reader was told with the log from sequence after on.
func (p *process) told(t *testing.T, id agentsvc.TaskID, after int, got []agentsvc.Event) {
	t.Helper()
	if diff := cmp.Diff(p.log(t, id)[after:], got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("log after %d -, told +\n%s", after, diff)
	}
}

func chatty(w *work) error {
	m := w.message("one two three")
	for i, word := range []string{"one ", "two ", "three"} {
		w.Chunk(agentsvc.Chunk{Message: m.ID, Offset: 4 * i, Text: word})
	}
	facts := []agentsvc.Event{
		{Usage: &agentsvc.Usage{Model: "m", InputTokens: 3}}, {Message: m},
		{Result: &agentsvc.ToolResult{Call: "c", Name: "n", Text: "x"}},
		{Artifact: &agentsvc.ArtifactUpdate{Artifact: agentsvc.Artifact{ID: "a", Parts: []agentsvc.Part{agentsvc.TextPart("z")}}}},
	}
	for _, ev := range facts {
		if err := w.Record(w, store.Record{Events: []agentsvc.Event{ev}}); err != nil {
			return err
		}
	}
	return w.end(agentsvc.Completed, "done")
}

// TestCall: who listens is told submitted, working, the text as it comes and every fact in order, and then no more.
func TestCall(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		p := start(t, d, chatty)
		got, evs, err := p.Call(within(t), send("hi"))
		if err != nil {
			t.Fatal(err)
		}
		if got.Status.State != agentsvc.Working || got.Seq != 2 || got.Owner != ana || got.Agent != "assistant" || got.Context == "" {
			t.Errorf("accepted as %+v", got)
		}
		facts, chunks := drain(t, evs)
		p.told(t, got.ID, 0, facts)
		if len(facts) != 7 || len(chunks) != 1 {
			t.Errorf("%d facts and chunks of %d messages, want 7 and 1", len(facts), len(chunks))
		}
		for _, text := range chunks {
			if text != "one two three" {
				t.Errorf("the chunks read %q", text)
			}
		}
		for _, ev := range facts {
			got.Apply(ev)
		}
		stored, err := p.Get(t.Context(), task.Reach{}, got.ID, all)
		if diff := cmp.Diff(stored, got); err != nil || diff != "" {
			t.Errorf("stored -, folded from what was told + (%v)\n%s", err, diff)
		}
	})
}

// TestSlowReader: one who reads nothing until everything is over, and more than is kept for him, misses no fact and
// reads no text twice.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	const messages = 400
	over := make(chan struct{})
	p := start(t, dbtest.SQLite(t), func(w *work) error {
		defer close(over)
		for i := range messages {
			m := w.message(fmt.Sprint("message ", i))
			for j, r := range m.Parts[0].Text {
				w.Chunk(agentsvc.Chunk{Message: m.ID, Offset: j, Text: string(r)})
			}
			if err := w.Record(w, store.Record{Events: []agentsvc.Event{{Message: m}}}); err != nil {
				return err
			}
		}
		return w.end(agentsvc.Completed, "done")
	})
	got, evs, err := p.Call(within(t), send("hi"))
	if err != nil {
		t.Fatal(err)
	}
	told := map[agentsvc.MessageID]bool{}
	facts, _ := drain(t, func(yield func(agentsvc.Event, error) bool) {
		for ev, err := range evs {
			if ev.Seq == 3 {
				<-over
			}
			if ev.Message != nil {
				told[ev.Message.ID] = true
			}
			if ev.Chunk != nil && told[ev.Chunk.Message] {
				t.Errorf("a chunk of a message that was told already: %q", ev.Chunk.Text)
			}
			if !yield(ev, err) {
				return
			}
		}
	})
	p.told(t, got.ID, 0, facts)
	if len(facts) != messages+3 {
		t.Errorf("%d facts, want %d", len(facts), messages+3)
	}
}

// TestFollow: from whichever sequence on, while the task works and when it has ended, what one is told is the log.
func TestFollow(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		step := make(chan struct{})
		p := start(t, d, func(w *work) error { <-step; return chatty(w) })
		got, err := p.Submit(t.Context(), live(send("hi")))
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
			snapshot, evs, err := p.Follow(within(t), task.Reach{Owner: &ana}, got.ID, &after)
			if err != nil || snapshot.Status.State != agentsvc.Working || snapshot.Seq != 2 {
				t.Fatalf("follow after %d: %+v (%v)", after, snapshot, err)
			}
			go func() {
				facts, _ := drain(t, evs)
				readings <- reading{after, facts}
			}()
		}
		close(step)
		for range ask {
			r := <-readings
			p.told(t, got.ID, int(max(0, min(r.after, 2))), r.facts) // nobody has seen what is not there yet
		}
		for after := range int64(9) {
			_, evs, err := p.Follow(within(t), task.Reach{}, got.ID, &after)
			if err != nil {
				t.Fatal(err)
			}
			facts, _ := drain(t, evs)
			p.told(t, got.ID, int(min(after, 7)), facts)
		}
		snapshot, evs, err := p.Follow(within(t), task.Reach{}, got.ID, nil)
		if facts, _ := drain(t, evs); err != nil || len(facts) != 0 || snapshot.Status.State != agentsvc.Completed {
			t.Errorf("an ended task is followed by %v (%v)", facts, err)
		}
	})
}

func live(sub task.Submission) task.Submission {
	sub.Live = true
	return sub
}

// TestElsewhere: a task that works in another process is followed by its log.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		steps := make(chan struct{})
		here := start(t, d, func(w *work) error {
			for i := range 3 {
				<-steps
				if err := w.say(fmt.Sprint(i)); err != nil {
					return err
				}
			}
			return w.end(agentsvc.Completed, "done")
		})
		there := start(t, d, chatty)
		got, err := here.Submit(t.Context(), live(send("hi")))
		if err != nil {
			t.Fatal(err)
		}
		_, evs, err := there.Follow(within(t), task.Reach{}, got.ID, nil)
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
		here.told(t, got.ID, 2, append(facts, ev))
	})
}

// TestTakenElsewhere: a run leaves this process without an end, another process finishes the task, and who follows it
// here is told.
func TestTakenElsewhere(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	leave := make(chan struct{})
	here := start(t, d, func(*work) error { <-leave; return agentsvc.ErrLost })
	there := start(t, d, chatty)
	_, evs, err := here.Call(within(t), send("hi"))
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
		time.Sleep(50 * time.Millisecond) // the reader waits for what the run here says
		runs := store.NewRuns(d)
		if _, err := runs.Rescue(context.Background(), -time.Hour); err != nil {
			t.Error(err)
		}
		claimed, err := runs.Claim(context.Background(), "there", []store.Share{{Tenant: "acme", Take: 1}})
		if err != nil || len(claimed) != 1 {
			t.Errorf("claimed %v (%v)", claimed, err)
			close(leave)
			return
		}
		taken := claimed[0]
		rec := there.Recorder(&taken)
		defer rec.Close()
		if err := errors.Join(rec.Begin(context.Background()), (&work{context.Background(), rec, taken}).end(agentsvc.Completed, "done")); err != nil {
			t.Error(err)
		}
		close(leave)
	}()
	ev, err, _ := next()
	if err != nil || ev.Status == nil || ev.Status.State != agentsvc.Completed {
		t.Errorf("told %+v (%v), want the end", ev, err)
	}
}

// TestReaderLeaves: however a reader leaves, nothing of it stays.
func TestReaderLeaves(t *testing.T) {
	t.Parallel()
	leave := make(chan struct{})
	p := start(t, dbtest.SQLite(t), func(w *work) error {
		<-leave
		return w.end(agentsvc.Completed, "done")
	})
	defer close(leave)
	ctx, cancel := context.WithCancel(t.Context())
	got, evs, err := p.Call(ctx, send("hi"))
	if err != nil {
		t.Fatal(err)
	}
	for range evs {
		break
	}
	_, unread, err := p.Call(ctx, send("nobody ranges over this"))
	if err != nil {
		t.Fatal(err)
	}
	_ = unread
	_, follow, err := p.Follow(ctx, task.Reach{}, got.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	for ev, err := range follow {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("told %+v, %v; want the end of the context", ev, err)
		}
	}
	// The runs still hold their topics; the hub is looked at when the process stops.
}

// TestCancel ends a task wherever it stands; who works on it stops at once.
func TestCancel(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		causes := make(chan error, 1)
		p := start(t, d, func(w *work) error {
			if w.run.Message.Text() == "ask" {
				return w.end(agentsvc.InputRequired, "which?")
			}
			<-w.Done()
			causes <- context.Cause(w)
			return w.say("too late")
		})
		pending, err := p.Submit(t.Context(), send("later"))
		if err != nil {
			t.Fatal(err)
		}
		_, evs, err := p.Call(within(t), send("ask"))
		if err != nil {
			t.Fatal(err)
		}
		var waiting agentsvc.TaskID
		for ev, err := range evs {
			if waiting = ev.Task; err != nil || ev.Status.State.Interrupted() {
				break
			}
		}
		running, evs, err := p.Call(within(t), send("work"))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []agentsvc.TaskID{pending.ID, waiting, running.ID} {
			got, err := p.Cancel(t.Context(), task.Reach{Owner: &ana}, id)
			if err != nil || got.Status.State != agentsvc.Cancelled {
				t.Fatalf("cancel: %+v (%v)", got, err)
			}
			stored, err := p.Get(t.Context(), task.Reach{}, id, all)
			if diff := cmp.Diff(stored, got); err != nil || diff != "" {
				t.Errorf("stored -, returned + (%v)\n%s", err, diff)
			}
			if _, err := p.Cancel(t.Context(), task.Reach{}, id); !errors.Is(err, agentsvc.ErrTerminal) {
				t.Errorf("cancel once more: %v", err)
			}
		}
		if cause := <-causes; !errors.Is(cause, agentsvc.ErrLost) {
			t.Errorf("the worker stopped because %v", cause)
		}
		facts, _ := drain(t, evs)
		p.told(t, running.ID, 0, facts)
		if last := facts[len(facts)-1]; last.Status == nil || last.Status.State != agentsvc.Cancelled {
			t.Errorf("the caller was last told %+v", last)
		}
	})
}

// TestReach: what is out of reach answers as what does not exist, to everything one can ask.
func TestReach(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		p := start(t, d, func(w *work) error { return w.end(agentsvc.InputRequired, "which?") })
		got, evs, err := p.Call(within(t), send("hi"))
		if err != nil {
			t.Fatal(err)
		}
		for ev := range evs {
			if ev.Status != nil && ev.Status.State.Interrupted() {
				break
			}
		}
		before := len(p.log(t, got.ID))
		twin := agentsvc.Owner{Issuer: "other", Subject: "ana"}
		for _, c := range []struct {
			name  string
			reach task.Reach
			id    agentsvc.TaskID
		}{
			{"unknown", task.Reach{}, agentsvc.TaskID(agentsvc.NewID())},
			{"no id", task.Reach{}, ""},
			{"an odd id", task.Reach{}, "a\x00b"},
			{"an id that is no text", task.Reach{}, "\xff"},
			{"a long id", task.Reach{}, agentsvc.TaskID(strings.Repeat("x", 100_000))},
			{"another owner", task.Reach{Owner: &bob}, got.ID},
			{"another issuer", task.Reach{Owner: &twin}, got.ID},
			{"another agent", task.Reach{Agents: []string{"other"}, Owner: &ana}, got.ID},
			{"no agent", task.Reach{Agents: []string{}, Owner: &ana}, got.ID},
		} {
			t.Run(c.name, func(t *testing.T) {
				ctx := t.Context()
				_, err := p.Get(ctx, c.reach, c.id, all)
				none(t, "get", err)
				_, _, err = p.Follow(ctx, c.reach, c.id, nil)
				none(t, "follow", err)
				_, err = p.Cancel(ctx, c.reach, c.id)
				none(t, "cancel", err)
				sub := send("answer")
				sub.Message.Task, sub.Agent = c.id, "other"
				if c.reach.Owner != nil {
					sub.Owner = *c.reach.Owner
				}
				if c.id != "" { // which opens a task
					_, err = p.Submit(ctx, sub)
					none(t, "answer", err)
				}
			})
		}
		if got := len(p.log(t, got.ID)); got != before {
			t.Errorf("the log grew from %d to %d", before, got)
		}
	})
}

func none(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || err.Error() != agentsvc.ErrNotFound.Error() || !errors.Is(err, agentsvc.ErrNotFound) {
		t.Errorf("%s: %v, want exactly %q", what, err, agentsvc.ErrNotFound)
	}
}
