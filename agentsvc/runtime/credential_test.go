package runtime_test

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
	"stoa/agentsvc/config"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/keyring"
)

func newKeyring(t *testing.T) *keyring.Keyring {
	t.Helper()
	k, err := keyring.New(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// keyServer is a server that accepts requests with a known key and repeats the key in its response.
type keyServer struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string // method, path and key of each request
}

func newKeyServer(t *testing.T, header string, keys ...string) *keyServer {
	t.Helper()
	l := &keyServer{}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get(header)
		l.mu.Lock()
		l.requests = append(l.requests, r.URL.Path+" "+key)
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

func (s *keyServer) drainRequests() (seen []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, s.requests = s.requests, nil
	return seen
}

const credentialSource = `
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

// newCredentialApp returns an app whose tools request credentials.
func newCredentialApp(t *testing.T, d *db.DB, url string) *runtime.Runtime {
	t.Helper()
	cfg := mustParse(t, strings.ReplaceAll(credentialSource, "URL", url), config.Options{})
	return newAppWith(t, d, cfg, runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, DefaultApp: true, PrivateNetwork: true}, slog.New(slog.DiscardHandler))
}

// newCredentialSubmission returns a message on a task that supplies credentials, as a surface submits it.
func newCredentialSubmission(t *testing.T, agent string, id agentsvc.TaskID, toolsAndValues ...string) task.Submission {
	t.Helper()
	sub := newSubmissionFor(agent, "")
	sub.Message.Task, sub.Message.Parts = id, nil
	for i := 0; i < len(toolsAndValues); i += 2 {
		value := map[string]any{"type": "tool_credential", "tool": toolsAndValues[i], "value": toolsAndValues[i+1]}
		sub.Message.Parts = append(sub.Message.Parts, agentsvc.Part{Data: &agentsvc.Data{Value: value}})
	}
	var err error
	if sub.Decisions, err = task.ParseDecisions(&sub.Message); err != nil {
		t.Fatal(err)
	}
	return sub
}

// logKinds returns the kinds of the events on a task's log.
func logKinds(t *testing.T, d *db.DB, id agentsvc.TaskID) (kinds []string) {
	t.Helper()
	evs, err := store.New(d, "acme").Events.Load(t.Context(), nil, id, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range evs {
		switch {
		case ev.Status != nil:
			kinds = append(kinds, string(ev.Status.State))
		case ev.Decision != nil:
			kinds = append(kinds, string(ev.Decision.Outcome))
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

func requireStatus(t *testing.T, outcome agentsvc.Task, state agentsvc.State, text string) {
	t.Helper()
	if outcome.Status.State != state || outcome.Status.Message.Text() != text {
		t.Fatalf("%s %q, want %s %q", outcome.Status.State, outcome.Status.Message.Text(), state, text)
	}
}

// TestCredential checks that a call without its credential is not made, and that the turn continues with that call once
// the credential is supplied, also in later tasks.
func TestCredential(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		srv := newKeyServer(t, "X-Key", "ana's key")
		a := newCredentialApp(t, d, srv.URL)
		outcome, _ := runTurn(t, a, newSubmission("both"))
		requireStatus(t, outcome, agentsvc.AuthRequired, "Your key?")
		want := []agentsvc.Part{agentsvc.TextPart("Your key?"), {Data: &agentsvc.Data{MediaType: "application/json", Value: map[string]any{
			"type": "tool_credential", "tool": "api", "header": "X-Key", "server": srv.URL, "prompt": "Your key?",
		}}}}
		if diff := cmp.Diff(want, outcome.Status.Message.Parts); diff != "" {
			t.Error(diff)
		}
		if seen := srv.drainRequests(); seen != nil {
			t.Errorf("the server was asked %q without a credential", seen)
		}
		answer := newSubmissionFor("helper", "what for?")
		answer.Message.Task = outcome.ID
		if _, err := a.Tasks().Messages.Submit(t.Context(), answer); !errors.Is(err, agentsvc.ErrAwaitingCredential) {
			t.Errorf("a plain answer: %v", err)
		}
		boss := agentsvc.Owner{Issuer: "test", Subject: "boss"}
		otherOwner := newCredentialSubmission(t, "helper", outcome.ID, "api", "boss's key")
		otherOwner.Owner = boss
		if _, err := a.Tasks().Messages.Submit(t.Context(), otherOwner); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("supplied by another user: %v", err)
		}
		if _, err := a.Tasks().Decisions.Decide(t.Context(), task.Visibility{}, outcome.ID, boss, audit.Origin{}, task.DecisionInput{Outcome: agentsvc.OutcomeApproved}); !errors.Is(err, agentsvc.ErrNoOpenDecision) {
			t.Errorf("approved: %v", err)
		}
		var invalid *agentsvc.Error
		open, err := a.Tasks().Reader.Get(t.Context(), task.Visibility{}, outcome.ID, store.TaskParts{Approvals: true})
		if err != nil || len(open.Approvals) != 2 {
			t.Fatalf("%+v, %v", open.Approvals, err)
		}
		yes := task.DecisionInput{Call: open.Approvals[0].Call.ID, Outcome: agentsvc.OutcomeApproved}
		if _, err := a.Tasks().Decisions.Decide(t.Context(), task.Visibility{}, outcome.ID, boss, audit.Origin{}, yes); !errors.As(err, &invalid) || invalid.Field != "call_id" {
			t.Errorf("approved by its id: %v", err)
		}
		if _, err := a.Tasks().Messages.Submit(t.Context(), newCredentialSubmission(t, "helper", outcome.ID, "calc", "x")); !errors.As(err, &invalid) || invalid.Field != "tool" {
			t.Errorf("for another tool: %v", err)
		}
		outcome, _ = runTurn(t, a, newCredentialSubmission(t, "helper", outcome.ID, "api", "ana's key"))
		requireStatus(t, outcome, agentsvc.Completed, "Got: HTTP 200 OK\nContent-Type: text/plain; charset=utf-8\n\nhello [credential]")
		seen := srv.drainRequests()
		if len(seen) != 2 || !strings.HasSuffix(seen[0], " ana's key") || !strings.HasSuffix(seen[1], " ana's key") {
			t.Errorf("the server was asked %q", seen)
		}
		wantFacts := []string{
			"submitted", "working", "message", "result", "ask credential", "ask credential", "auth_required",
			"supply", "supply", "working", "call", "call", "result", "result", "completed",
		}
		if diff := cmp.Diff(wantFacts, logKinds(t, d, outcome.ID)); diff != "" {
			t.Error(diff)
		}
		if _, err := a.Tasks().Messages.Submit(t.Context(), newCredentialSubmission(t, "helper", outcome.ID, "api", "x")); !errors.Is(err, agentsvc.ErrTaskEnded) {
			t.Errorf("supplied again: %v", err)
		}
		outcome, _ = runTurn(t, a, newSubmission("get "+srv.URL+"/later"))
		if outcome.Status.State != agentsvc.Completed {
			t.Errorf("the next time: %s", outcome.Status.State)
		}
		bobs := newSubmission("get " + srv.URL + "/bob")
		bobs.Owner.Subject = "bob"
		if outcome, _ = runTurn(t, a, bobs); outcome.Status.State != agentsvc.AuthRequired {
			t.Errorf("another user: %s", outcome.Status.State)
		}
		if diff := cmp.Diff([]string{"/later ana's key"}, srv.drainRequests()); diff != "" {
			t.Error(diff)
		}
		if _, err := a.Tasks().Canceller.Cancel(t.Context(), task.Visibility{}, outcome.ID); err != nil {
			t.Errorf("cancelled: %v", err)
		}
	})
}

// TestCredentialRefused checks that a credential that its server rejects is deleted and requested again, up to a bound.
func TestCredentialRefused(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	srv := newKeyServer(t, "X-Key", "right key")
	a := newCredentialApp(t, d, srv.URL)
	outcome, _ := runTurn(t, a, newSubmission("get "+srv.URL))
	question := "Your key?"
	for range 3 {
		requireStatus(t, outcome, agentsvc.AuthRequired, question)
		question = "The last one was not accepted. Your key?"
		outcome, _ = runTurn(t, a, newCredentialSubmission(t, "helper", outcome.ID, "api", "wrong key"))
	}
	requireStatus(t, outcome, agentsvc.Completed, "Got: api needs a credential of its caller that "+srv.URL+" accepts; 3 were supplied in this turn")
	if seen := srv.drainRequests(); len(seen) != 3 {
		t.Errorf("the server was asked %q", seen)
	}
	again := newCredentialSubmission(t, "helper", outcome.ID, "api", "one")
	again.Message.ID = "m-1"
	other := newCredentialSubmission(t, "helper", outcome.ID, "api", "two")
	other.Message.ID = "m-1"
	if diff := cmp.Diff(again.Message, other.Message); diff != "" || strings.Contains(fmt.Sprint(again.Message.Parts[0].Data), "one") {
		t.Errorf("a message from which the credential was taken still contains it: %s", diff)
	}
	if stored, err := a.Vault().ListCredentials(t.Context(), ana); err != nil || len(stored) != 0 {
		t.Errorf("kept %+v, %v", stored, err)
	}
	outcome, _ = runTurn(t, a, newSubmission("get "+srv.URL))
	requireStatus(t, outcome, agentsvc.AuthRequired, "Your key?")
	outcome, _ = runTurn(t, a, newCredentialSubmission(t, "helper", outcome.ID, "api", "wrong key"))
	requireStatus(t, outcome, agentsvc.AuthRequired, question)
	outcome, _ = runTurn(t, a, newCredentialSubmission(t, "helper", outcome.ID, "api", "right key"))
	requireStatus(t, outcome, agentsvc.Completed, "Got: HTTP 200 OK\nContent-Type: text/plain; charset=utf-8\n\nhello [credential]")
}

// TestCredentialAndApproval checks that a call that needs both gets one after the other, and that calls that need one
// each wait at the same time.
func TestCredentialAndApproval(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	srv := newKeyServer(t, "X-Key", "the key")
	a := newCredentialApp(t, d, srv.URL)
	approve := func(id agentsvc.TaskID) task.Submission {
		sub := newSubmissionFor("helper", "yes")
		sub.Message.Task, sub.Decisions = id, []task.DecisionInput{{Outcome: agentsvc.OutcomeApproved}}
		return sub
	}
	outcome, _ := runTurn(t, a, newSubmission("pay"))
	requireStatus(t, outcome, agentsvc.InputRequired, "May paid run?")
	outcome, _ = runTurn(t, a, approve(outcome.ID))
	requireStatus(t, outcome, agentsvc.AuthRequired, "paid needs a credential of yours: the value of the header X-Key for "+srv.URL+".")
	outcome, _ = runTurn(t, a, newCredentialSubmission(t, "helper", outcome.ID, "paid", "the key"))
	requireStatus(t, outcome, agentsvc.Completed, "Got: HTTP 200 OK\nContent-Type: text/plain; charset=utf-8\n\nhello [credential]")
	if diff := cmp.Diff([]string{"/pay the key"}, srv.drainRequests()); diff != "" {
		t.Error(diff)
	}

	outcome, _ = runTurn(t, a, newSubmission("all"))
	requireStatus(t, outcome, agentsvc.InputRequired, "May paid run?\nYour key?")
	if _, err := a.Tasks().Messages.Submit(t.Context(), newCredentialSubmission(t, "helper", outcome.ID, "api", "the key")); err != nil {
		t.Fatal(err)
	}
	got, err := a.Tasks().Reader.Get(t.Context(), task.Visibility{}, outcome.ID, store.TaskParts{Approvals: true})
	if err != nil || got.Status.State != agentsvc.InputRequired || len(got.Approvals) != 1 || !got.Approvals[0].NeedsDecision() || srv.drainRequests() != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if outcome, _ = runTurn(t, a, approve(outcome.ID)); outcome.Status.State != agentsvc.Completed || len(srv.drainRequests()) != 2 {
		t.Errorf("%s %+v", outcome.Status.State, outcome.Status.Message)
	}

	if err := a.Vault().ForgetCredential(t.Context(), ana, audit.Origin{}, "api"); err != nil {
		t.Fatal(err)
	}
	outcome, _ = runTurn(t, a, newSubmission("all"))
	now, err := a.Tasks().Decisions.Decide(t.Context(), task.Visibility{}, outcome.ID, ana, audit.Origin{}, task.DecisionInput{Outcome: agentsvc.OutcomeApproved})
	if err != nil || now.Status.State != agentsvc.InputRequired || now.Status.Message.Text() != "Your key?" {
		t.Fatalf("%+v, %v", now, err)
	}
	if _, err := a.Tasks().Messages.Submit(t.Context(), approve(outcome.ID)); !errors.Is(err, agentsvc.ErrNoOpenDecision) {
		t.Errorf("decided again: %v", err)
	}
	if outcome, _ = runTurn(t, a, newCredentialSubmission(t, "helper", outcome.ID, "api", "the key")); outcome.Status.State != agentsvc.Completed {
		t.Errorf("%s %+v", outcome.Status.State, outcome.Status.Message)
	}
}

// TestCredentialBelow checks that members of an agent request credentials through the root task concurrently, and that
// each continues in its own frame.
func TestCredentialBelow(t *testing.T) {
	t.Parallel()
	for agent, want := range map[string]string{
		"team": "Got: HTTP 200", "boss": "The helper says: Got: HTTP 200", "pair": "helper:\nGot: HTTP 200",
	} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			d := dbtest.NewSQLite(t)
			srv := newKeyServer(t, "X-Key", "the key")
			a := newCredentialApp(t, d, srv.URL)
			outcome, _ := runTurn(t, a, newSubmissionFor(agent, "get "+srv.URL))
			requireStatus(t, outcome, agentsvc.AuthRequired, "Your key?")
			messages := strings.Count(fmt.Sprint(logKinds(t, d, outcome.ID)), "message")
			outcome, _ = runTurn(t, a, newCredentialSubmission(t, agent, outcome.ID, "api", "the key"))
			if outcome.Status.State != agentsvc.Completed || !strings.HasPrefix(outcome.Status.Message.Text(), want) {
				t.Errorf("%s %q", outcome.Status.State, outcome.Status.Message.Text())
			}
			evs, err := store.New(d, "acme").Events.Load(t.Context(), nil, outcome.ID, 0, 1000)
			if err != nil {
				t.Fatal(err)
			}
			before := 0 // the number of model calls, which must not be repeated
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

// TestCredentialRestart checks that a turn continues after a restart in between.
func TestCredentialRestart(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		srv := newKeyServer(t, "X-Key", "the key")
		var outcome agentsvc.Task
		t.Run("before", func(t *testing.T) {
			outcome, _ = runTurn(t, newCredentialApp(t, d, srv.URL), newSubmission("get "+srv.URL+"/x"))
			requireStatus(t, outcome, agentsvc.AuthRequired, "Your key?")
		})
		outcome, _ = runTurn(t, newCredentialApp(t, d, srv.URL), newCredentialSubmission(t, "helper", outcome.ID, "api", "the key"))
		if diff := cmp.Diff([]string{"/x the key"}, srv.drainRequests()); outcome.Status.State != agentsvc.Completed || diff != "" {
			t.Errorf("%s %s", outcome.Status.State, diff)
		}
	})
}

// TestCredentialTooLate checks that a task without its credential at the timeout fails once, with the missing
// credential in its message; a task that also waits for a decision is rejected.
func TestCredentialTooLate(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		srv := newKeyServer(t, "X-Key", "the key")
		src := strings.ReplaceAll(credentialSource, "URL", srv.URL)
		src = strings.ReplaceAll(src, "{type: function, handler: http_request,", "{type: function, handler: http_request, approval_timeout: 10ms,")
		tenant := runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, DefaultApp: true, PrivateNetwork: true}
		a := newAppWith(t, d, mustParse(t, src, config.Options{}), tenant, slog.New(slog.DiscardHandler))
		for text, want := range map[string]struct {
			state agentsvc.State
			says  string
		}{
			"both": {agentsvc.Failed, "Nobody supplied the credential for api within 10ms."},
			"all":  {agentsvc.Rejected, "Nobody decided about the call of paid within 10ms. Nobody supplied the credential for api within 10ms."},
		} {
			outcome, _ := runTurn(t, a, newSubmission(text))
			_, events, err := a.Tasks().Reader.Follow(t.Context(), task.Visibility{}, outcome.ID, &outcome.Seq)
			if err != nil {
				t.Fatal(err)
			}
			for ev, err := range events {
				if err != nil {
					t.Fatal(err)
				}
				outcome.ApplyEvent(ev)
			}
			requireStatus(t, outcome, want.state, want.says)
			var failure any
			if want.state == agentsvc.Failed {
				failure = map[string]any{"code": "FAILED_PRECONDITION", "details": map[string]any{"credentials": []any{"api"}}}
			}
			if diff := cmp.Diff(failure, outcome.Status.Message.Metadata[agentsvc.FailureKey]); diff != "" {
				t.Errorf("%s: metadata.error %s", text, diff)
			}
		}
		if seen := srv.drainRequests(); len(seen) > 0 {
			t.Errorf("the server was asked %v", seen)
		}
	})
}

// TestCredentialElsewhere checks that no other server gets the credential, neither by a call of the model nor by a
// redirect.
func TestCredentialElsewhere(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	srv, other := newKeyServer(t, "X-Key", "the key"), newKeyServer(t, "X-Key", "")
	a := newCredentialApp(t, d, srv.URL)
	if outcome, _ := runTurn(t, a, newSubmission("get "+other.URL+"/mine")); outcome.Status.State != agentsvc.Completed {
		t.Fatalf("the tool asks for a credential that the server does not get: %+v", outcome.Status)
	}
	outcome, _ := runTurn(t, a, newSubmission("get "+srv.URL+"/?to="+other.URL+"/yours"))
	requireStatus(t, outcome, agentsvc.AuthRequired, "Your key?")
	if outcome, _ = runTurn(t, a, newCredentialSubmission(t, "helper", outcome.ID, "api", "the key")); outcome.Status.State != agentsvc.Completed {
		t.Errorf("%+v", outcome.Status)
	}
	if diff := cmp.Diff([]string{"/ the key"}, srv.drainRequests()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"/mine ", "/yours "}, other.drainRequests()); diff != "" {
		t.Error(diff)
	}
	// A configuration with another server requests the credential again.
	moved := newCredentialApp(t, d, other.URL)
	outcome, _ = runTurn(t, moved, newSubmission("get "+other.URL))
	requireStatus(t, outcome, agentsvc.AuthRequired, "Your key?")
}

// TestCredentialExample checks that the example requests what it describes.
func TestCredentialExample(t *testing.T) {
	t.Parallel()
	a := newExampleApp(t, "credential")
	outcome, _ := runTurn(t, a, newSubmissionFor("clerk", "my tasks"))
	requireStatus(t, outcome, agentsvc.AuthRequired, `Which token may I use? Type it as "Bearer" and the token.`)
	outcome, _ = runTurn(t, a, newCredentialSubmission(t, "clerk", outcome.ID, "tasks", "Bearer x"))
	if outcome.Status.State != agentsvc.Completed {
		t.Errorf("%s %q", outcome.Status.State, outcome.Status.Message.Text())
	}
}
