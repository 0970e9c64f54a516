package runner_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/scripted"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/runner"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/agentsvc/tool"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ana   = agentsvc.Owner{Issuer: "stoa", Subject: "ana"}
	reach = task.Reach{Owner: &ana}
)

// model is the scripted provider, which keeps what it was asked and may fail first.
type model struct {
	llm.Provider
	mu   sync.Mutex
	reqs []llm.Request
	errs []error // of the next calls; nil = none
}

func (m *model) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	m.mu.Lock()
	defer m.mu.Unlock()
	req.Conversation = slices.Clone(req.Conversation)
	m.reqs = append(m.reqs, req)
	if len(m.errs) > 0 {
		err := m.errs[0]
		if m.errs = m.errs[1:]; err != nil {
			return func(yield func(llm.Chunk, error) bool) { yield(llm.Chunk{}, err) }
		}
	}
	return m.Provider.Stream(ctx, req)
}

func (m *model) steps() (steps []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, req := range m.reqs {
		_, step, _ := strings.Cut(req.Step, "/")
		steps = append(steps, step)
	}
	return steps
}

func script(t *testing.T, rules ...scripted.Rule) *model {
	t.Helper()
	p, err := scripted.New(scripted.Options{Script: rules})
	if err != nil {
		t.Fatal(err)
	}
	return &model{Provider: p}
}

// talker calls tool "look" when told to, asks, refuses, and else says what it heard.
func talker(t *testing.T) *model {
	return script(t,
		scripted.Rule{When: scripted.When{ToolResult: "look"}, Then: []scripted.Item{{Say: "I saw: {{result}}"}}},
		scripted.Rule{When: scripted.When{Text: "^look$"}, Then: []scripted.Item{{Say: "One moment."}, {Call: &scripted.Call{Tool: "look"}}}},
		scripted.Rule{When: scripted.When{Text: "^ask$"}, Then: []scripted.Item{{Ask: "Which one?"}}},
		scripted.Rule{When: scripted.When{Text: "^slow$"}, Then: []scripted.Item{{Say: "one ", Pause: 10 * time.Minute}, {Say: "two"}}},
		scripted.Rule{Then: []scripted.Item{{Say: "You said: {{text}}"}}},
	)
}

// look is a tool made of a function.
type look struct {
	call       func(ctx context.Context) (string, error)
	idempotent bool
}

func (look) Spec() agentsvc.ToolSpec { return agentsvc.ToolSpec{Name: "look"} }
func (l look) Idempotent() bool      { return l.idempotent }
func (l look) Call(ctx context.Context, _ tool.Input) (string, error) {
	return l.call(ctx)
}

func thinker(t *testing.T, m *model, l look) agent.Agent {
	t.Helper()
	if l.call == nil {
		l.call = func(context.Context) (string, error) { return "a cat", nil }
	}
	set, err := tool.NewSet([]tool.Tool{l}, tool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return agent.NewLLM(m, agent.Options{Tools: set})
}

// house is a process that runs the agents of one tenant.
type house struct {
	*task.Service
	d    *db.DB
	st   *store.Store
	pool *queue.Pool
	run  *runner.Runner
	end  func()

	agents map[string]agent.Agent
	retry  queue.Retry
	o      runner.Options
}

var quick = queue.Retry{Max: 2, Initial: time.Millisecond, Limit: time.Millisecond}

// build makes a house whose pool does nothing by itself.
func build(d *db.DB, retry queue.Retry, agents map[string]agent.Agent) *house {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	hub := task.NewHub(nil)
	h := &house{d: d, st: store.New(d, "acme"), agents: agents, retry: retry}
	h.pool = queue.New(store.NewRuns(d), func(ctx context.Context, run store.Run) error { return h.run.Run(ctx, run) },
		queue.Options{Stale: 10 * time.Second, Retry: retry, GiveUp: task.NewDeadLetters(d, hub, func() {}, task.DeadOptions{}).Add, Log: quiet})
	h.Service = task.New(h.st, "acme", 1, hub, h.pool, quiet, task.Options{})
	h.rewire()
	return h
}

// rewire has the agents work for the house's service.
func (h *house) rewire() {
	h.run = runner.New(h.Service, h.agents, h.retry, slog.New(slog.NewTextHandler(io.Discard, nil)), h.o)
}

// open makes a house at work.
func open(t *testing.T, d *db.DB, retry queue.Retry, agents map[string]agent.Agent) *house {
	t.Helper()
	h := build(d, retry, agents)
	h.start(t)
	return h
}

// start has the house work until the test ends, or until stop.
func (h *house) start(t *testing.T) {
	t.Helper()
	if err := h.pool.Open(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = h.pool.Run(ctx) })
	h.end = sync.OnceFunc(func() {
		now, stop := context.WithCancel(context.Background())
		stop()
		_ = h.pool.Drain(now)
		cancel()
		wg.Wait()
	})
	t.Cleanup(h.end)
}

// stop ends the process as an operator would who has no patience.
func (h *house) stop(t *testing.T) {
	t.Helper()
	h.end()
}

func send(text string) task.Submission {
	return task.Submission{Agent: "a", Owner: ana, Message: agentsvc.Message{Context: "c1", Parts: []agentsvc.Part{agentsvc.TextPart(text)}}}
}

// call sends and listens until the turn is over.
func (h *house) call(t *testing.T, sub task.Submission) (agentsvc.Task, []agentsvc.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got, evs, err := h.Call(ctx, sub)
	if err != nil {
		t.Fatal(err)
	}
	var facts []agentsvc.Event
	for ev, err := range evs {
		if err != nil {
			t.Fatalf("after %d facts: %v", len(facts), err)
		}
		if ev.Chunk != nil {
			continue
		}
		facts = append(facts, ev)
		if got.Apply(ev); ev.Status != nil && (ev.Status.State.Terminal() || ev.Status.State.Interrupted()) {
			break
		}
	}
	return got, facts
}

// row reads the row of a task's run.
func (h *house) row(t *testing.T, id agentsvc.TaskID, turn int) (state store.RunState, attempts int64, lastError string) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan((*string)(&state), &attempts, &lastError) },
		"SELECT state, attempts, last_error FROM run WHERE tenant = 'acme' AND task = $1 AND turn = $2", string(id), turn)
	if err := h.d.Platform().Do(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	return state, attempts, lastError
}

// due tells in how much time the next pending run may be claimed.
func (h *house) due(t *testing.T) time.Duration {
	t.Helper()
	var us int64
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&us) }, "SELECT MIN(available_at) - stoa_now() FROM run WHERE state = 'pending'")
	if err := h.d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return time.Duration(us) * time.Microsecond
}

// talk is what the session of context c1 holds, in a word each.
func (h *house) talk(t *testing.T) (lines []string) {
	t.Helper()
	sess, err := h.st.Session(t.Context(), ana, "c1")
	if err != nil {
		t.Fatal(err)
	}
	return spoken(sess.Entries)
}

func spoken(entries []agentsvc.Entry) (lines []string) {
	for _, e := range entries {
		switch {
		case e.Result != nil:
			lines = append(lines, "result: "+e.Result.Text)
		case len(e.Message.ToolCalls) > 0:
			lines = append(lines, string(e.Message.Role)+" calls: "+e.Message.Text())
		default:
			lines = append(lines, string(e.Message.Role)+": "+e.Message.Text())
		}
	}
	return lines
}

func kinds(evs []agentsvc.Event) (lines []string) {
	for _, ev := range evs {
		switch {
		case ev.Status != nil:
			lines = append(lines, string(ev.Status.State))
		case ev.Message != nil:
			lines = append(lines, "message")
		case ev.Result != nil:
			lines = append(lines, "result")
		case ev.Approval != nil:
			lines = append(lines, "approval")
		case ev.Decision != nil:
			lines = append(lines, string(ev.Decision.Verdict))
		case ev.Call != nil:
			lines = append(lines, "call")
		case ev.Artifact != nil:
			lines = append(lines, "artifact")
		case ev.Usage != nil:
			lines = append(lines, "usage")
		}
	}
	return lines
}

// each runs f on each engine.
func each(t *testing.T, f func(t *testing.T, d *db.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.Each(t, f)
}

// broken is an agent that does something wrong.
type broken func(yield func(agentsvc.Event, error) bool)

func (b broken) Run(context.Context, agent.Invocation) iter.Seq2[agentsvc.Event, error] {
	return iter.Seq2[agentsvc.Event, error](b)
}

var errInside = errors.New("dial tcp 10.0.0.7: secret-canary")
