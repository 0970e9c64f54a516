package runtime_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/task"
	"stoa/tenancy/db/dbtest"
)

// startTranslator starts a small A2A 0.3 server. Its answer has the caller's credentials and the message.
func startTranslator(t *testing.T) string {
	t.Helper()
	var srv *httptest.Server
	srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_ = json.NewEncoder(w).Encode(newCard03(srv.URL))
			return
		}
		var call struct {
			ID     any
			Params struct {
				Message struct{ Parts []struct{ Text string } }
			}
		}
		_ = json.NewDecoder(r.Body).Decode(&call)
		text := r.Header.Get("X-Caller") + " " + r.Header.Get("Authorization") + ": " + call.Params.Message.Parts[0].Text
		_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": call.ID, "result": map[string]any{
			"kind": "message", "messageId": "1", "role": "agent", "parts": []any{map[string]any{"kind": "text", "text": text}},
		}})
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func newCard03(url string) map[string]any {
	return map[string]any{
		"name": "translator", "protocolVersion": "0.3.0", "url": url, "preferredTransport": "JSONRPC", "capabilities": map[string]any{},
		"defaultInputModes": []string{}, "defaultOutputModes": []string{}, "skills": []any{}, "version": "1", "description": "",
	}
}

// TestRemote runs the example, with the card in each place where it may be.
func TestRemote(t *testing.T) {
	t.Parallel()
	url := startTranslator(t)
	src, err := os.ReadFile("../../examples/remote.yaml")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(newCard03(url))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "card.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	const says = "stoa Bearer secret: good morning"
	for location, c := range map[string]struct {
		line   string
		inside bool
		want   string
	}{
		"below the url":        {"url: " + url, true, says},
		"at its own address":   {"agent_card_url: " + url + "/any/card", true, says},
		"in a file":            {"agent_card_file: " + file, true, says},
		"in a file of the url": {"url: " + url + "\n    agent_card_file: " + file, true, says},
		"in a private network": {"url: " + url, false, "the remote agent translator could not be called: the address of \"127.0.0.1\" is not allowed"},
	} {
		t.Run(location, func(t *testing.T) {
			t.Parallel()
			source := strings.Replace(string(src), "url: http://127.0.0.1:9000", c.line, 1)
			a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, source, config.Options{}),
				runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, DefaultApp: true, PrivateNetwork: c.inside}, slog.New(slog.DiscardHandler))
			outcome, _ := runTurn(t, a, newSubmissionFor("translator", "good morning"))
			state := agentsvc.Completed
			if !c.inside {
				state = agentsvc.Failed
			}
			if outcome.Status.State != state || !strings.HasPrefix(outcome.Status.Message.Text(), c.want) {
				t.Errorf("%s %q, want %q", outcome.Status.State, outcome.Status.Message.Text(), c.want)
			}
		})
	}
}

// TestRemoteCancel checks that the cancellation of a task cancels the remote task.
func TestRemoteCancel(t *testing.T) {
	t.Parallel()
	began, cancelled := make(chan struct{}, 100), make(chan string, 1)
	var srv *httptest.Server
	srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_ = json.NewEncoder(w).Encode(newCard03(srv.URL))
			return
		}
		var call struct {
			ID     any
			Method string
			Params struct{ ID string }
		}
		_ = json.NewDecoder(r.Body).Decode(&call)
		state := "working"
		if began <- struct{}{}; call.Method == "tasks/cancel" {
			state = "canceled"
			cancelled <- call.Params.ID
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": call.ID, "result": map[string]any{
			"kind": "task", "id": "theirs", "contextId": "c", "status": map[string]any{"state": state},
		}})
	}))
	t.Cleanup(srv.Close)
	a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, "agents: {helper: {type: remote, url: "+srv.URL+", timeout: 1m}}", config.Options{}),
		runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, PrivateNetwork: true}, slog.New(slog.DiscardHandler))
	accepted, err := a.Tasks().Messages.Submit(t.Context(), newSubmission("go"))
	if err != nil {
		t.Fatal(err)
	}
	<-began
	<-began // its status was requested, so its id is known
	if _, err := a.Tasks().Canceller.Cancel(t.Context(), task.Visibility{Owner: &ana}, accepted.ID); err != nil {
		t.Fatal(err)
	}
	select {
	case id := <-cancelled:
		if id != "theirs" {
			t.Errorf("task %q was cancelled", id)
		}
	case <-time.After(time.Minute):
		t.Error("the other server got no request")
	}
}
