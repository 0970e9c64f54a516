package app_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/app"
	"stoa/agentsvc/config"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

func keyring(t *testing.T) *tenancy.Keyring {
	t.Helper()
	k, err := tenancy.NewKeyring(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// locked is a server that answers whoever brings a key it knows, and repeats it.
type locked struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string // method, path and key of each request
}

func lock(t *testing.T, header string, keys ...string) *locked {
	t.Helper()
	l := &locked{}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get(header)
		l.mu.Lock()
		l.seen = append(l.seen, r.URL.Path+" "+key)
		l.mu.Unlock()
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		for _, known := range keys {
			if key == known {
				_, _ = io.WriteString(w, "hello "+key)
				return
			}
		}
		http.Error(w, "who are you with "+key, http.StatusUnauthorized)
	}))
	t.Cleanup(l.Close)
	return l
}

func (l *locked) asked() (seen []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen, l.seen = l.seen, nil
	return seen
}

const lockedSource = `
llms:
  demo:
    provider: scripted
    script:
      - when: {tool_result: api}
        then: [{say: "Got: {{result}}"}]
      - when: {tool_result: paid}
        then: [{say: "Got: {{result}}"}]
      - when: {text: "^both$"}
        then:
          - call: {tool: api, arguments: {url: "URL/one"}}
          - call: {tool: calc, arguments: {expression: "1 + 1"}}
          - call: {tool: api, arguments: {url: "URL/two"}}
      - when: {text: "^all$"}
        then: [{call: {tool: api, arguments: {url: "URL/one"}}}, {call: {tool: paid, arguments: {url: "URL/two"}}}]
      - when: {text: "^pay$"}
        then: [{call: {tool: paid, arguments: {url: "URL/pay", method: POST, body: x}}}]
      - when: {text: "get (?P<url>\\S+)$"}
        then: [{call: {tool: api, arguments: {url: "{{url}}"}}}]
  chief:
    provider: scripted
    script:
      - when: {tool_result: "helper"}
        then: [{say: "The helper says: {{result}}"}]
      - then: [{call: {tool: helper, arguments: {request: "get URL/deep"}}}]
tools:
  api: {type: function, handler: http_request, credential: {header: X-Key, prompt: "Your key?", url: "URL/v1"}}
  paid: {type: function, handler: http_request, require_approval: true, credential: {header: X-Key, url: "URL"}}
  calc: {type: function, handler: calculator}
agents:
  helper: {llm: demo, tools: [api, paid, calc]}
  team: {type: sequential, sub_agents: [helper]}
  pair: {type: parallel, sub_agents: [helper, boss]}
  boss: {llm: chief, agent_tools: [helper]}
`

// client is an app whose tools have a lock to open.
func client(t *testing.T, d *db.DB, url string) *app.App {
	t.Helper()
	cfg := parsed(t, strings.ReplaceAll(lockedSource, "URL", url), config.Options{})
	return houseOf(t, d, cfg, app.Tenant{ID: "acme", Name: "acme", Revision: 1, Own: true, Inside: true}, slog.New(slog.DiscardHandler))
}

// brings is a message on a task that brings credentials, as a dialect submits it.
func brings(t *testing.T, agent string, id agentsvc.TaskID, toolsAndValues ...string) task.Submission {
	t.Helper()
	sub := ask(agent, "")
	sub.Message.Task, sub.Message.Parts = id, nil
	for i := 0; i < len(toolsAndValues); i += 2 {
		value := map[string]any{"type": "tool_credential", "tool": toolsAndValues[i], "value": toolsAndValues[i+1]}
		sub.Message.Parts = append(sub.Message.Parts, agentsvc.Part{Data: &agentsvc.Data{Value: value}})
	}
	var err error
	if sub.Rulings, err = task.Rulings(&sub.Message); err != nil {
		t.Fatal(err)
	}
	return sub
}

// facts names the kinds of what is on a task's log.
func facts(t *testing.T, d *db.DB, id agentsvc.TaskID) (kinds []string) {
	t.Helper()
	evs, err := store.New(d, "acme").Events(t.Context(), id, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range evs {
		switch {
		case ev.Status != nil:
			kinds = append(kinds, string(ev.Status.State))
		case ev.Decision != nil:
			kinds = append(kinds, string(ev.Decision.Verdict))
		case ev.Approval != nil:
			kinds = append(kinds, "ask "+string(ev.Approval.Kind))
		case ev.Message != nil:
			kinds = append(kinds, "message")
		case ev.Call != nil:
			kinds = append(kinds, "call")
		case ev.Result != nil:
			kinds = append(kinds, "result")
		}
	}
	return kinds
}

func rests(t *testing.T, told agentsvc.Task, state agentsvc.State, text string) {
	t.Helper()
	if told.Status.State != state || told.Status.Message.Text() != text {
		t.Fatalf("%s %q, want %s %q", told.Status.State, told.Status.Message.Text(), state, text)
	}
}

// TestCredential: a call whose caller has no credential is not made; supplied, it goes on where it stopped, for good.
func TestCredential(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		srv := lock(t, "X-Key", "ana's key")
		a := client(t, d, srv.URL)
		told, _ := call(t, a, say("both"))
		rests(t, told, agentsvc.AuthRequired, "Your key?")
		want := []agentsvc.Part{agentsvc.TextPart("Your key?"), {Data: &agentsvc.Data{MediaType: "application/json", Value: map[string]any{
			"type": "tool_credential", "tool": "api", "header": "X-Key", "server": srv.URL, "prompt": "Your key?",
		}}}}
		if diff := cmp.Diff(want, told.Status.Message.Parts); diff != "" {
			t.Error(diff)
		}
		if seen := srv.asked(); seen != nil {
			t.Errorf("the server was asked %q without a credential", seen)
		}
		answer := ask("helper", "what for?")
		answer.Message.Task = told.ID
		if _, err := a.Tasks().Submit(t.Context(), answer); !errors.Is(err, agentsvc.ErrNoCredential) {
			t.Errorf("a plain answer: %v", err)
		}
		boss := agentsvc.Owner{Issuer: "test", Subject: "boss"}
		stranger := brings(t, "helper", told.ID, "api", "boss's key")
		stranger.Owner = boss
		if _, err := a.Tasks().Submit(t.Context(), stranger); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("supplied by somebody else: %v", err)
		}
		if _, err := a.Tasks().Decide(t.Context(), task.Reach{}, told.ID, boss, task.Ruling{Verdict: agentsvc.Approve}); !errors.Is(err, agentsvc.ErrDecided) {
			t.Errorf("approved: %v", err)
		}
		var invalid *agentsvc.InvalidError
		open, err := a.Tasks().Get(t.Context(), task.Reach{}, told.ID, store.With{Approvals: true})
		if err != nil || len(open.Approvals) != 2 {
			t.Fatalf("%+v, %v", open.Approvals, err)
		}
		yes := task.Ruling{Call: open.Approvals[0].Call.ID, Verdict: agentsvc.Approve}
		if _, err := a.Tasks().Decide(t.Context(), task.Reach{}, told.ID, boss, yes); !errors.As(err, &invalid) || invalid.Field != "call_id" {
			t.Errorf("approved by its id: %v", err)
		}
		if _, err := a.Tasks().Submit(t.Context(), brings(t, "helper", told.ID, "calc", "x")); !errors.As(err, &invalid) || invalid.Field != "tool" {
			t.Errorf("for another tool: %v", err)
		}
		told, _ = call(t, a, brings(t, "helper", told.ID, "api", "ana's key"))
		rests(t, told, agentsvc.Completed, "Got: HTTP 200 OK\nContent-Type: text/plain; charset=utf-8\n\nhello [credential]")
		seen := srv.asked()
		if len(seen) != 2 || !strings.HasSuffix(seen[0], " ana's key") || !strings.HasSuffix(seen[1], " ana's key") {
			t.Errorf("the server was asked %q", seen)
		}
		wantFacts := []string{
			"submitted", "working", "message", "result", "ask credential", "ask credential", "auth_required",
			"supply", "supply", "working", "call", "call", "result", "result", "completed",
		}
		if diff := cmp.Diff(wantFacts, facts(t, d, told.ID)); diff != "" {
			t.Error(diff)
		}
		if _, err := a.Tasks().Submit(t.Context(), brings(t, "helper", told.ID, "api", "x")); !errors.Is(err, agentsvc.ErrTerminal) {
			t.Errorf("supplied again: %v", err)
		}
		told, _ = call(t, a, say("get "+srv.URL+"/later"))
		if told.Status.State != agentsvc.Completed {
			t.Errorf("the next time: %s", told.Status.State)
		}
		bobs := say("get " + srv.URL + "/bob")
		bobs.Owner.Subject = "bob"
		if told, _ = call(t, a, bobs); told.Status.State != agentsvc.AuthRequired {
			t.Errorf("somebody else: %s", told.Status.State)
		}
		if diff := cmp.Diff([]string{"/later ana's key"}, srv.asked()); diff != "" {
			t.Error(diff)
		}
		if _, err := a.Tasks().Cancel(t.Context(), task.Reach{}, told.ID); err != nil {
			t.Errorf("cancelled: %v", err)
		}
	})
}

// TestCredentialRefused: a credential that its server does not accept is forgotten and asked for again, but not for ever.
func TestCredentialRefused(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	srv := lock(t, "X-Key", "right key")
	a := client(t, d, srv.URL)
	told, _ := call(t, a, say("get "+srv.URL))
	question := "Your key?"
	for range 3 {
		rests(t, told, agentsvc.AuthRequired, question)
		question = "The last one was not accepted. Your key?"
		told, _ = call(t, a, brings(t, "helper", told.ID, "api", "wrong key"))
	}
	rests(t, told, agentsvc.Completed, "Got: api needs a credential of its caller that "+srv.URL+" accepts; 3 were supplied in this turn")
	if seen := srv.asked(); len(seen) != 3 {
		t.Errorf("the server was asked %q", seen)
	}
	again := brings(t, "helper", told.ID, "api", "one")
	again.Message.ID = "m-1"
	other := brings(t, "helper", told.ID, "api", "two")
	other.Message.ID = "m-1"
	if diff := cmp.Diff(again.Message, other.Message); diff != "" || strings.Contains(fmt.Sprint(again.Message.Parts[0].Data), "one") {
		t.Errorf("a message from which the credential was taken still tells it: %s", diff)
	}
	if kept, err := a.Vault().List(t.Context(), ana); err != nil || len(kept) != 0 {
		t.Errorf("kept %+v, %v", kept, err)
	}
	told, _ = call(t, a, say("get "+srv.URL))
	rests(t, told, agentsvc.AuthRequired, "Your key?")
	told, _ = call(t, a, brings(t, "helper", told.ID, "api", "wrong key"))
	rests(t, told, agentsvc.AuthRequired, question)
	told, _ = call(t, a, brings(t, "helper", told.ID, "api", "right key"))
	rests(t, told, agentsvc.Completed, "Got: HTTP 200 OK\nContent-Type: text/plain; charset=utf-8\n\nhello [credential]")
}

// TestCredentialAndApproval: a call that needs both gets one after the other, and calls that need one each wait together.
func TestCredentialAndApproval(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	srv := lock(t, "X-Key", "the key")
	a := client(t, d, srv.URL)
	approve := func(id agentsvc.TaskID) task.Submission {
		sub := ask("helper", "yes")
		sub.Message.Task, sub.Rulings = id, []task.Ruling{{Verdict: agentsvc.Approve}}
		return sub
	}
	told, _ := call(t, a, say("pay"))
	rests(t, told, agentsvc.InputRequired, "May paid run?")
	told, _ = call(t, a, approve(told.ID))
	rests(t, told, agentsvc.AuthRequired, "paid needs a credential of yours: the value of the header X-Key for "+srv.URL+".")
	told, _ = call(t, a, brings(t, "helper", told.ID, "paid", "the key"))
	rests(t, told, agentsvc.Completed, "Got: HTTP 200 OK\nContent-Type: text/plain; charset=utf-8\n\nhello [credential]")
	if diff := cmp.Diff([]string{"/pay the key"}, srv.asked()); diff != "" {
		t.Error(diff)
	}

	told, _ = call(t, a, say("all"))
	rests(t, told, agentsvc.InputRequired, "May paid run?\nYour key?")
	if _, err := a.Tasks().Submit(t.Context(), brings(t, "helper", told.ID, "api", "the key")); err != nil {
		t.Fatal(err)
	}
	got, err := a.Tasks().Get(t.Context(), task.Reach{}, told.ID, store.With{Approvals: true})
	if err != nil || got.Status.State != agentsvc.InputRequired || len(got.Approvals) != 1 || !got.Approvals[0].Decidable() || srv.asked() != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if told, _ = call(t, a, approve(told.ID)); told.Status.State != agentsvc.Completed || len(srv.asked()) != 2 {
		t.Errorf("%s %+v", told.Status.State, told.Status.Message)
	}

	if err := a.Vault().Forget(t.Context(), ana, "api"); err != nil {
		t.Fatal(err)
	}
	told, _ = call(t, a, say("all"))
	now, err := a.Tasks().Decide(t.Context(), task.Reach{}, told.ID, ana, task.Ruling{Verdict: agentsvc.Approve})
	if err != nil || now.Status.State != agentsvc.InputRequired || now.Status.Message.Text() != "Your key?" {
		t.Fatalf("%+v, %v", now, err)
	}
	if _, err := a.Tasks().Submit(t.Context(), approve(told.ID)); !errors.Is(err, agentsvc.ErrDecided) {
		t.Errorf("decided again: %v", err)
	}
	if told, _ = call(t, a, brings(t, "helper", told.ID, "api", "the key")); told.Status.State != agentsvc.Completed {
		t.Errorf("%s %+v", told.Status.State, told.Status.Message)
	}
}

// TestCredentialBelow: agents below others ask through the root task, side by side, and each goes on in its frame.
func TestCredentialBelow(t *testing.T) {
	t.Parallel()
	for agent, want := range map[string]string{
		"team": "Got: HTTP 200", "boss": "The helper says: Got: HTTP 200", "pair": "helper:\nGot: HTTP 200",
	} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			d := dbtest.SQLite(t)
			srv := lock(t, "X-Key", "the key")
			a := client(t, d, srv.URL)
			told, _ := call(t, a, ask(agent, "get "+srv.URL))
			rests(t, told, agentsvc.AuthRequired, "Your key?")
			messages := strings.Count(fmt.Sprint(facts(t, d, told.ID)), "message")
			told, _ = call(t, a, brings(t, agent, told.ID, "api", "the key"))
			if told.Status.State != agentsvc.Completed || !strings.HasPrefix(told.Status.Message.Text(), want) {
				t.Errorf("%s %q", told.Status.State, told.Status.Message.Text())
			}
			evs, err := store.New(d, "acme").Events(t.Context(), told.ID, 0, 1000)
			if err != nil {
				t.Fatal(err)
			}
			before := 0 // what the models had called is not called for again
			for _, ev := range evs {
				if ev.Message != nil && len(ev.Message.ToolCalls) > 0 {
					before++
				}
			}
			if before != messages {
				t.Errorf("%d messages with calls, %d of them before the credential", before, messages)
			}
		})
	}
}

// TestCredentialRestart: whoever restarts in between goes on as well.
func TestCredentialRestart(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		srv := lock(t, "X-Key", "the key")
		var told agentsvc.Task
		t.Run("before", func(t *testing.T) {
			told, _ = call(t, client(t, d, srv.URL), say("get "+srv.URL+"/x"))
			rests(t, told, agentsvc.AuthRequired, "Your key?")
		})
		told, _ = call(t, client(t, d, srv.URL), brings(t, "helper", told.ID, "api", "the key"))
		if diff := cmp.Diff([]string{"/x the key"}, srv.asked()); told.Status.State != agentsvc.Completed || diff != "" {
			t.Errorf("%s %s", told.Status.State, diff)
		}
	})
}

// TestCredentialTooLate: a task whose owner supplies nothing in time fails, and says for want of what, once; one that a
// decision was missing to as well is rejected.
func TestCredentialTooLate(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		srv := lock(t, "X-Key", "the key")
		src := strings.ReplaceAll(lockedSource, "URL", srv.URL)
		src = strings.ReplaceAll(src, "{type: function, handler: http_request,", "{type: function, handler: http_request, approval_timeout: 10ms,")
		tenant := app.Tenant{ID: "acme", Name: "acme", Revision: 1, Own: true, Inside: true}
		a := houseOf(t, d, parsed(t, src, config.Options{}), tenant, slog.New(slog.DiscardHandler))
		for text, want := range map[string]struct {
			state agentsvc.State
			says  string
		}{
			"both": {agentsvc.Failed, "Nobody supplied the credential for api within 10ms."},
			"all":  {agentsvc.Rejected, "Nobody decided about the call of paid within 10ms. Nobody supplied the credential for api within 10ms."},
		} {
			told, _ := call(t, a, say(text))
			_, events, err := a.Tasks().Follow(t.Context(), task.Reach{}, told.ID, &told.Seq)
			if err != nil {
				t.Fatal(err)
			}
			for ev, err := range events {
				if err != nil {
					t.Fatal(err)
				}
				told.Apply(ev)
			}
			rests(t, told, want.state, want.says)
		}
		if seen := srv.asked(); len(seen) > 0 {
			t.Errorf("the server was asked %v", seen)
		}
	})
}

// TestCredentialElsewhere: no other server gets it, neither when the model asks another one nor by a redirect.
func TestCredentialElsewhere(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	srv, other := lock(t, "X-Key", "the key"), lock(t, "X-Key", "")
	a := client(t, d, srv.URL)
	if told, _ := call(t, a, say("get "+other.URL+"/mine")); told.Status.State != agentsvc.Completed {
		t.Fatalf("the tool asks for a credential that the server does not get: %+v", told.Status)
	}
	told, _ := call(t, a, say("get "+srv.URL+"/?to="+other.URL+"/yours"))
	rests(t, told, agentsvc.AuthRequired, "Your key?")
	if told, _ = call(t, a, brings(t, "helper", told.ID, "api", "the key")); told.Status.State != agentsvc.Completed {
		t.Errorf("%+v", told.Status)
	}
	if diff := cmp.Diff([]string{"/ the key"}, srv.asked()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"/mine ", "/yours "}, other.asked()); diff != "" {
		t.Error(diff)
	}
	// A configuration that names another server asks anew.
	moved := client(t, d, other.URL)
	told, _ = call(t, moved, say("get "+other.URL))
	rests(t, told, agentsvc.AuthRequired, "Your key?")
}

// TestCredentialExample: the example asks for what it says it asks for.
func TestCredentialExample(t *testing.T) {
	t.Parallel()
	a := example(t, "credential")
	told, _ := call(t, a, ask("clerk", "my tasks"))
	rests(t, told, agentsvc.AuthRequired, `Which token may I use? Type it as "Bearer" and the token.`)
	told, _ = call(t, a, brings(t, "clerk", told.ID, "tasks", "Bearer x"))
	if told.Status.State != agentsvc.Completed {
		t.Errorf("%s %q", told.Status.State, told.Status.Message.Text())
	}
}
