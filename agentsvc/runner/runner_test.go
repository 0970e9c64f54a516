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
	ana           = agentsvc.Owner{Issuer: "stoa", Subject: "ana"}
	anaVisibility = task.Visibility{Owner: &ana}
)

// model is the scripted provider. It records its requests and can fail first.
type model struct {
	llm.Provider
	mu   sync.Mutex
	reqs []llm.Request
	errs []error // errors of the next calls; nil = none
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

func (m *model) requestSteps() (steps []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, req := range m.reqs {
		_, step, _ := strings.Cut(req.Step, "/")
		steps = append(steps, step)
	}
	return steps
}

func newScriptedModel(t *testing.T, rules ...scripted.Rule) *model {
	t.Helper()
	p, err := scripted.New(scripted.Options{Script: rules})
	if err != nil {
		t.Fatal(err)
	}
	return &model{Provider: p}
}

// newTalkerModel returns a model that calls tool look, asks or refuses when the message demands it, and otherwise
// repeats the message.
func newTalkerModel(t *testing.T) *model {
	return newScriptedModel(t,
		scripted.Rule{When: scripted.When{ToolResult: "look"}, Then: []scripted.Item{{Text: "I saw: {{result}}"}}},
		scripted.Rule{When: scripted.When{Text: "^look$"}, Then: []scripted.Item{{Text: "One moment."}, {Call: &scripted.Call{Tool: "look"}}}},
		scripted.Rule{When: scripted.When{Text: "^ask$"}, Then: []scripted.Item{{Question: "Which one?"}}},
		scripted.Rule{When: scripted.When{Text: "^slow$"}, Then: []scripted.Item{{Text: "one ", Pause: 10 * time.Minute}, {Text: "two"}}},
		scripted.Rule{Then: []scripted.Item{{Text: "You said: {{text}}"}}},
	)
}

// lookTool is a tool made of a function.
type lookTool struct {
	call       func(ctx context.Context) (string, error)
	idempotent bool
}

func (lookTool) Spec() agentsvc.ToolSpec { return agentsvc.ToolSpec{Name: "look"} }
func (l lookTool) IsIdempotent() bool    { return l.idempotent }
func (l lookTool) Call(ctx context.Context, _ tool.Call) (string, error) {
	return l.call(ctx)
}

func newLookAgent(t *testing.T, m *model, l lookTool) agent.Agent {
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

// testProcess is a process that runs the agents of one tenant.
type testProcess struct {
	*task.Service
	d        *db.DB
	st       *store.Store
	pool     *queue.Pool
	runner   *runner.Runner
	shutDown func()

	agents  map[string]agent.Agent
	retry   queue.Retry
	options runner.Options
}

var quickRetry = queue.Retry{MaxRetries: 2, InitialDelay: time.Millisecond, MaxDelay: time.Millisecond}

// newTestProcess returns a process whose pool is not started.
func newTestProcess(d *db.DB, retry queue.Retry, agents map[string]agent.Agent) *testProcess {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	hub := task.NewHub(nil)
	h := &testProcess{d: d, st: store.New(d, "acme"), agents: agents, retry: retry}
	h.pool = queue.New(d, func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
		return h.runner.Run(ctx, run, lease)
	},
		queue.Options{StaleAfter: 10 * time.Second, Retry: retry, GiveUp: task.NewDeadLetters(d, hub, func() {}, task.DeadOptions{}).GiveUp, Log: quiet})
	h.Service = task.New(h.st, "acme", 1, hub, h.pool, quiet, task.Options{})
	h.resetRunner()
	return h
}

// resetRunner makes the agents work for the process's task service.
func (p *testProcess) resetRunner() {
	p.runner = runner.New(p.Service, p.agents, p.retry, slog.New(slog.NewTextHandler(io.Discard, nil)), p.options)
}

// openTestProcess returns a process whose pool is started.
func openTestProcess(t *testing.T, d *db.DB, retry queue.Retry, agents map[string]agent.Agent) *testProcess {
	t.Helper()
	h := newTestProcess(d, retry, agents)
	h.startWorking(t)
	return h
}

// startWorking runs the process's pool until the test ends, or until stop.
func (p *testProcess) startWorking(t *testing.T) {
	t.Helper()
	if err := p.pool.Open(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.pool.Run(ctx) })
	p.shutDown = sync.OnceFunc(func() {
		now, stop := context.WithCancel(context.Background())
		stop()
		_ = p.pool.Drain(now)
		cancel()
		wg.Wait()
	})
	t.Cleanup(p.shutDown)
}

// stopNow stops the process without waiting for its runs.
func (p *testProcess) stopNow(t *testing.T) {
	t.Helper()
	p.shutDown()
}

func newSubmission(text string) task.Submission {
	return task.Submission{Agent: "a", Owner: ana, Message: agentsvc.Message{Context: "c1", Parts: []agentsvc.Part{agentsvc.TextPart(text)}}}
}

// submitAndDrain sends a message and reads events until the turn is over.
func (p *testProcess) submitAndDrain(t *testing.T, sub task.Submission) (agentsvc.Task, []agentsvc.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, evs, err := p.Messages.SubmitAndFollow(ctx, sub)
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
		if got.ApplyEvent(ev); ev.Status != nil && (ev.Status.State.IsTerminal() || ev.Status.State.IsInterrupted()) {
			break
		}
	}
	return got, facts
}

// readRunRow reads the row of a task's run.
func (p *testProcess) readRunRow(t *testing.T, id agentsvc.TaskID, turn int) (state store.RunState, attempts int64, lastError string) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan((*string)(&state), &attempts, &lastError) },
		"SELECT state, attempts, last_error FROM run WHERE tenant = 'acme' AND task = $1 AND turn = $2", string(id), turn)
	if err := p.d.Platform().Do(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	return state, attempts, lastError
}

// timeUntilDue returns the time until the next pending run may be claimed.
func (p *testProcess) timeUntilDue(t *testing.T) time.Duration {
	t.Helper()
	var us int64
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&us) }, "SELECT MIN(available_at) - stoa_now() FROM run WHERE state = 'pending'")
	if err := p.d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return time.Duration(us) * time.Microsecond
}

// sessionLines returns the entries of the session of context c1, one short line each.
func (p *testProcess) sessionLines(t *testing.T) (lines []string) {
	t.Helper()
	sess, err := p.st.Sessions.Load(t.Context(), ana, "c1")
	if err != nil {
		t.Fatal(err)
	}
	return formatEntries(sess.Entries)
}

func formatEntries(entries []agentsvc.Entry) (lines []string) {
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

func eventKinds(evs []agentsvc.Event) (lines []string) {
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
			lines = append(lines, string(ev.Decision.Outcome))
		case ev.Call != nil:
			lines = append(lines, "call")
		case ev.Artifact != nil:
			lines = append(lines, "artifact")
		case ev.Usage != nil:
			lines = append(lines, "usage")
		case ev.Attempt != nil:
			lines = append(lines, "attempt")
		}
	}
	return lines
}

// forEachEngine runs f on each engine.
func forEachEngine(t *testing.T, f func(t *testing.T, d *db.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.ForEachEngine(t, f)
}

// brokenAgent is an agent that misbehaves.
type brokenAgent func(yield func(agentsvc.Event, error) bool)

func (b brokenAgent) Run(context.Context, agent.Invocation) iter.Seq2[agentsvc.Event, error] {
	return iter.Seq2[agentsvc.Event, error](b)
}

var errInternal = errors.New("dial tcp 10.0.0.7: secret-canary")
