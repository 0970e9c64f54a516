package app_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/app"
	"stoa/agentsvc/config"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/queue"
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

// house builds the app of source with workers of its own.
func house(t *testing.T, d *db.DB) *app.App {
	t.Helper()
	return houseOf(t, d, parsed(t, source, config.Options{}), app.Tenant{ID: "acme", Name: "acme", Revision: 1}, slog.New(slog.DiscardHandler))
}

func parsed(t *testing.T, src string, o config.Options) *config.Config {
	t.Helper()
	cfg, err := config.Parse([]byte(src), o)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// houseOf builds an app with workers of its own, in a house that may be changed before, and closes it when the test ends.
func houseOf(t *testing.T, d *db.DB, cfg *config.Config, tenant app.Tenant, log *slog.Logger, change ...func(h *app.House)) *app.App {
	t.Helper()
	var a *app.App
	pool := queue.New(store.NewRuns(d), func(ctx context.Context, run store.Run) error { return a.Run(ctx, run) }, queue.Options{})
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
	h := app.House{
		DB: d, Keys: keyring(t), Hub: task.NewHub(nil), Workers: pool, Outside: egress.New(egress.Options{}), Inside: egress.New(egress.Options{PrivateNetwork: true}), Log: log,
	}
	for _, f := range change {
		f(&h)
	}
	var err error
	if a, err = app.Build(cfg, tenant, h); err != nil {
		t.Fatal(err)
	}
	return a
}

var ana = agentsvc.Owner{Issuer: "test", Subject: "ana"}

func say(text string) task.Submission {
	return task.Submission{Agent: "helper", Owner: ana, Message: agentsvc.Message{Parts: []agentsvc.Part{agentsvc.TextPart(text)}}}
}

// ask says text to an agent.
func ask(agent, text string) task.Submission {
	s := say(text)
	s.Agent = agent
	return s
}

// call runs a turn to its end and returns the task as its events tell it, with a line for each event.
func call(t *testing.T, a *app.App, sub task.Submission) (agentsvc.Task, []string) {
	t.Helper()
	accepted, events, err := a.Tasks().Call(t.Context(), sub)
	if err != nil {
		t.Fatal(err)
	}
	told := agentsvc.Task{ID: accepted.ID, Context: accepted.Context}
	var lines []string
	for ev, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		told.Apply(ev)
		switch {
		case ev.Chunk != nil: // a reader that is behind gets several as one
			if last := len(lines) - 1; strings.HasPrefix(lines[last], "chunk ") {
				lines[last] += ev.Chunk.Text
			} else {
				lines = append(lines, "chunk "+ev.Chunk.Text)
			}
		case ev.Result != nil:
			lines = append(lines, "result "+ev.Result.Text)
		case ev.Status != nil:
			lines = append(lines, string(ev.Status.State))
			if ev.Status.State.Interrupted() {
				return told, lines
			}
		}
	}
	return told, lines
}

func TestCall(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := house(t, d)
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
			told, lines := call(t, a, say(c.text))
			if told.Status.State != c.state || !strings.HasPrefix(told.Status.Message.Text(), c.says) || strings.Contains(told.Status.Message.Text(), "secret") {
				t.Errorf("%q: %s %q, want %s %q", c.text, told.Status.State, told.Status.Message.Text(), c.state, c.says)
			}
			if c.lines != nil && !slices.Equal(lines, c.lines) {
				t.Errorf("%q: %s", c.text, cmp.Diff(c.lines, lines))
			}
			stored, err := a.Tasks().Get(t.Context(), task.Reach{Agents: []string{"helper"}, Owner: &ana}, told.ID, store.With{History: true, Artifacts: true})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(told.History, stored.History); diff != "" {
				t.Errorf("%q: the events tell another history than the database: %s", c.text, diff)
			}
			if diff := cmp.Diff(told.Artifacts, stored.Artifacts); diff != "" {
				t.Errorf("%q: the events tell other artifacts than the database: %s", c.text, diff)
			}
		}
	})
}

// TestSession answers an agent's question: the same task goes on, and a later task of the context knows both turns.
func TestSession(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := house(t, d)
		asked, _ := call(t, a, say("ask"))
		answer := say("Paris")
		answer.Message.Task = asked.ID
		told, _ := call(t, a, answer)
		if told.Status.State != agentsvc.Completed || told.Status.Message.Text() != "You said: Paris" {
			t.Errorf("%s %q", told.Status.State, told.Status.Message.Text())
		}
		sess, err := store.New(d, "acme").Session(t.Context(), ana, asked.Context)
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, e := range sess.Entries {
			said = append(said, string(e.Message.Role)+": "+e.Message.Text())
		}
		want := []string{"user: ask", "agent: Which city?", "user: Paris", "agent: You said: Paris"}
		if diff := cmp.Diff(want, said); diff != "" {
			t.Error(diff)
		}
	})
}

func TestCards(t *testing.T) {
	t.Parallel()
	a := house(t, dbtest.SQLite(t))
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
