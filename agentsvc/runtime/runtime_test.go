package runtime_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

const source = `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "(?i)what is (?P<sum>[0-9+* ]+)"}
        then: [{call: {tool: calc, arguments: {expression: "{{sum}}"}}}]
      - when: {tool_result: calc}
        then: [{say: "It is {{result}}."}]
      - when: {text: "^ask$"}
        then: [{ask: "Which city?"}]
      - when: {text: "^refuse$"}
        then: [{refuse: "I may not."}]
      - when: {text: "^file$"}
        then: [{artifact: {name: out.txt, media_type: text/plain, text: hello}}, {say: done}]
      - when: {text: "^break$"}
        then: [{fail: {status: 400, message: "the vendor's secret words"}}]
      - then: [{say: "You said: {{text}}"}]
tools:
  calc: {type: function, handler: calculator}
  off: {type: function, handler: current_time, enabled: false}
agents:
  helper: {llm: demo, tools: [calc, off], instruction: SECRET}
  inner: {llm: demo, visibility: internal, name: Inner}
`

// newApp builds the app of source with workers of its own.
func newApp(t *testing.T, d *db.DB) *runtime.Runtime {
	t.Helper()
	return newAppWith(t, d, mustParse(t, source, config.Options{}), runtime.Tenant{ID: "acme", Name: "acme", Revision: 1}, slog.New(slog.DiscardHandler))
}

func mustParse(t *testing.T, src string, o config.Options) *config.Config {
	t.Helper()
	cfg, err := config.Parse([]byte(src), o)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// newAppWith builds an app with workers of its own and closes it at the end of the test. change may modify its
// dependencies.
func newAppWith(t *testing.T, d *db.DB, cfg *config.Config, tenant runtime.Tenant, log *slog.Logger, change ...func(h *runtime.Dependencies)) *runtime.Runtime {
	t.Helper()
	var a *runtime.Runtime
	pool := queue.New(d, func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
		return a.ExecuteRun(ctx, run, lease)
	}, queue.Options{})
	if err := pool.Open(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- pool.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		if err := pool.Drain(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	h := runtime.Dependencies{
		DB: d, Keys: newKeyring(t), Hub: task.NewHub(nil), Workers: pool, Host: runtime.Host{PublicEgress: egress.New(egress.Options{}), PrivateEgress: egress.New(egress.Options{PrivateNetwork: true})}, Log: log,
	}
	for _, f := range change {
		f(&h)
	}
	var err error
	if a, err = runtime.Build(cfg, tenant, h); err != nil {
		t.Fatal(err)
	}
	return a
}

var ana = agentsvc.Owner{Issuer: "test", Subject: "ana"}

func newSubmission(text string) task.Submission {
	return task.Submission{Agent: "helper", Owner: ana, Message: agentsvc.Message{Parts: []agentsvc.Part{agentsvc.TextPart(text)}}}
}

// newSubmissionFor returns a submission of text to an agent.
func newSubmissionFor(agent, text string) task.Submission {
	s := newSubmission(text)
	s.Agent = agent
	return s
}

// runTurn executes a turn to its end and returns the task as its events describe it, with a line for each event.
func runTurn(t *testing.T, a *runtime.Runtime, sub task.Submission) (agentsvc.Task, []string) {
	t.Helper()
	accepted, events, err := a.Tasks().Messages.SubmitAndFollow(t.Context(), sub)
	if err != nil {
		t.Fatal(err)
	}
	outcome := agentsvc.Task{ID: accepted.ID, Context: accepted.Context}
	var lines []string
	for ev, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		outcome.ApplyEvent(ev)
		switch {
		case ev.Chunk != nil: // a slow reader may get several deltas as one
			if last := len(lines) - 1; strings.HasPrefix(lines[last], "chunk ") {
				lines[last] += ev.Chunk.Text
			} else {
				lines = append(lines, "chunk "+ev.Chunk.Text)
			}
		case ev.Result != nil:
			lines = append(lines, "result "+ev.Result.Text)
		case ev.Status != nil:
			lines = append(lines, string(ev.Status.State))
			if ev.Status.State.IsInterrupted() {
				return outcome, lines
			}
		}
	}
	return outcome, lines
}

func TestCall(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		a := newApp(t, d)
		for _, c := range []struct {
			text  string
			state agentsvc.State
			says  string
			lines []string
		}{
			{"hello there", agentsvc.Completed, "You said: hello there", []string{"submitted", "working", "chunk You said: hello there", "completed"}},
			{"what is 6*7", agentsvc.Completed, "It is 42.", []string{"submitted", "working", "result 42", "chunk It is 42.", "completed"}},
			{"ask", agentsvc.InputRequired, "Which city?", nil},
			{"refuse", agentsvc.Rejected, "I may not.", nil},
			{"file", agentsvc.Completed, "done", nil},
			{"break", agentsvc.Failed, "model provider scripted answered 400: ", nil},
		} {
			outcome, lines := runTurn(t, a, newSubmission(c.text))
			if outcome.Status.State != c.state || !strings.HasPrefix(outcome.Status.Message.Text(), c.says) || strings.Contains(outcome.Status.Message.Text(), "secret") {
				t.Errorf("%q: %s %q, want %s %q", c.text, outcome.Status.State, outcome.Status.Message.Text(), c.state, c.says)
			}
			if c.lines != nil && !slices.Equal(lines, c.lines) {
				t.Errorf("%q: %s", c.text, cmp.Diff(c.lines, lines))
			}
			stored, err := a.Tasks().Reader.Get(t.Context(), task.Visibility{Agents: []string{"helper"}, Owner: &ana}, outcome.ID, store.TaskParts{History: true, Artifacts: true})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(outcome.History, stored.History); diff != "" {
				t.Errorf("%q: the events have another history than the database: %s", c.text, diff)
			}
			if diff := cmp.Diff(outcome.Artifacts, stored.Artifacts); diff != "" {
				t.Errorf("%q: the events have other artifacts than the database: %s", c.text, diff)
			}
		}
	})
}

// TestSession answers an agent's question: the same task continues, and a later task of the context knows both turns.
func TestSession(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		a := newApp(t, d)
		requested, _ := runTurn(t, a, newSubmission("ask"))
		answer := newSubmission("Paris")
		answer.Message.Task = requested.ID
		outcome, _ := runTurn(t, a, answer)
		if outcome.Status.State != agentsvc.Completed || outcome.Status.Message.Text() != "You said: Paris" {
			t.Errorf("%s %q", outcome.Status.State, outcome.Status.Message.Text())
		}
		sess, err := store.New(d, "acme").Sessions.Load(t.Context(), ana, requested.Context)
		if err != nil {
			t.Fatal(err)
		}
		var content []string
		for _, e := range sess.Entries {
			content = append(content, string(e.Message.Role)+": "+e.Message.Text())
		}
		want := []string{"user: ask", "agent: Which city?", "user: Paris", "agent: You said: Paris"}
		if diff := cmp.Diff(want, content); diff != "" {
			t.Error(diff)
		}
	})
}

func TestCards(t *testing.T) {
	t.Parallel()
	a := newApp(t, dbtest.NewSQLite(t))
	if c, ok := a.DefaultCard(); !ok || c.Agent != "helper" {
		t.Errorf("default card %+v, want the first public agent's", c)
	}
	if c, _ := a.Card("inner"); c.Name != "Inner" || c.Visibility != agentsvc.Internal || c.Version != "1.0.0" {
		t.Errorf("card %+v", c)
	}
	for _, c := range a.Cards() {
		if strings.Contains(c.Description, "SECRET") {
			t.Errorf("the card of %s shows its instruction", c.Agent)
		}
	}
}
