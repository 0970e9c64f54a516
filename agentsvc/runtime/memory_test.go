package runtime_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/embedder/embeddertest"
	"stoa/agentsvc/memory"
	"stoa/agentsvc/runtime"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// recordingModel is a model with OpenAI's protocol that answers "ok" to everything and records its requests.
type recordingModel struct {
	*httptest.Server
	mu       sync.Mutex
	requests []modelRequest
}

type modelRequest struct {
	Messages []struct {
		Role    string `json:"role"`
		Content any    `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Function struct{ Name string } `json:"function"`
	} `json:"tools"`
}

func startRecordingModel(t *testing.T) *recordingModel {
	h := &recordingModel{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var outcome modelRequest
		if err := json.NewDecoder(r.Body).Decode(&outcome); err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		h.requests = append(h.requests, outcome)
		h.mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		for _, delta := range []string{`{"role": "assistant", "content": "ok"}, "finish_reason": null`, `{}, "finish_reason": "stop"`} {
			fmt.Fprintf(w, "data: {\"id\": \"x\", \"object\": \"chat.completion.chunk\", \"model\": \"m\", \"choices\": [{\"index\": 0, \"delta\": %s}]}\n\n", delta)
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(h.Close)
	return h
}

// lastRequest returns the last request: its system prompt, the conversation, its tools.
func (r *recordingModel) lastRequest() (system string, conversation, tools []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.requests[len(r.requests)-1].Messages {
		if m.Role == "system" || m.Role == "developer" {
			system = fmt.Sprint(m.Content)
			continue
		}
		conversation = append(conversation, m.Role+": "+fmt.Sprint(m.Content))
	}
	for _, x := range r.requests[len(r.requests)-1].Tools {
		tools = append(tools, x.Function.Name)
	}
	return system, conversation, tools
}

// newMemoryApp builds an app whose agent helper uses the model h.
func newMemoryApp(t *testing.T, d *db.DB, h *recordingModel, more string) *runtime.Runtime {
	t.Helper()
	src := fmt.Sprintf(`
llms:
  default: {provider: openai, model: gpt-4o, base_url: %q, api_key: k}
  brief: {provider: scripted, script: [{then: [{say: NOTES}]}]}
agents:
  helper:
    instruction: Be kind.
%s
`, h.URL, more)
	return newAppWith(t, d, mustParse(t, src, config.Options{}), runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, PrivateNetwork: true}, slog.New(slog.DiscardHandler))
}

// runSessionTurn runs a turn of an owner in a session.
func runSessionTurn(t *testing.T, a *runtime.Runtime, owner agentsvc.Owner, session, text string) {
	t.Helper()
	sub := newSubmission(text)
	sub.Owner, sub.Message.Context = owner, agentsvc.ContextID(session)
	if outcome, lines := runTurn(t, a, sub); outcome.Status.State != agentsvc.Completed {
		t.Fatalf("%s: %v", text, lines)
	}
}

// TestContext checks what each strategy sends to the model in a conversation of four turns.
func TestContext(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 30)
	for _, c := range []struct {
		name, context string
		want          []string
	}{
		{"none", "{strategy: none}", []string{"user: 1 " + long, "assistant: ok", "user: 2 " + long, "assistant: ok", "user: 3 " + long, "assistant: ok", "user: 4 " + long}},
		{"buffer_window", "{strategy: buffer_window, window_size: 3}", []string{"user: 3 " + long, "assistant: ok", "user: 4 " + long}},
		{"token_window", "{strategy: token_window, budget: 60, preserve_recent: 0}", []string{"user: 4 " + long}},
		{"preserve_recent", "{strategy: token_window, budget: 60, preserve_recent: 3}", []string{"user: 3 " + long, "assistant: ok", "user: 4 " + long}},
		{"summary_buffer", "{strategy: summary_buffer, budget: 100, threshold: 0.9, target: 0.6, summarizer_llm: brief}",
			[]string{"user: Summary of our conversation so far:\nNOTES", "user: 3 " + long, "assistant: ok", "user: 4 " + long}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := startRecordingModel(t)
			a := newMemoryApp(t, dbtest.NewSQLite(t), h, "    context: "+c.context)
			for n := range 4 {
				runSessionTurn(t, a, ana, "c", fmt.Sprint(n+1, " ", long))
			}
			_, conversation, _ := h.lastRequest()
			for i := range conversation {
				conversation[i] = strings.TrimSpace(conversation[i])
			}
			var want []string
			for _, w := range c.want {
				want = append(want, strings.TrimSpace(w))
			}
			if diff := cmp.Diff(want, conversation); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestMemory checks that a conversation knows of another one with the same user, and not of other users'.
func TestMemory(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "vectors")
	vectors := embeddertest.NewServer(t)
	embedders := fmt.Sprintf("\nembedders: {e: {provider: ollama, base_url: %q}}\n", vectors.URL)
	for name, more := range map[string]string{
		"keyword": "\nstorage: {memory: {backend: keyword}}",
		"hashing": "\nembedders: {e: {provider: hashing}}\nstorage: {memory: {backend: vector, embedder: e}}",
		"vector":  embedders + "storage: {memory: {backend: vector, embedder: e}}",
		"folder":  embedders + fmt.Sprintf("storage: {memory: {backend: vector, embedder: e, vector_provider: {type: chromem, chromem: {persist_path: %q}}}}", folder),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
				h := startRecordingModel(t)
				a := newMemoryApp(t, d, h, more)
				runSessionTurn(t, a, ana, "first", "My dog is called Rex")
				if system, _, tools := h.lastRequest(); !strings.Contains(system, "Be kind.") || strings.Contains(system, "memories") || !slices.Contains(tools, "recall") {
					t.Errorf("the first turn has the prompt %q and the tools %v", system, tools)
				}
				waitUntilRemembered(t, a, "Rex")
				dbtest.WaitUntil(t, "the model is given what was said of the dog", func() bool {
					runSessionTurn(t, a, ana, agentsvc.NewID(), "What is my dog called?")
					system, _, _ := h.lastRequest()
					return strings.HasPrefix(system, "Be kind.") && strings.Contains(system, `"said":"My dog is called Rex"`)
				})
				runSessionTurn(t, a, agentsvc.Owner{Issuer: "test", Subject: "bob"}, "first", "What is my dog called?")
				if system, _, _ := h.lastRequest(); strings.Contains(system, "Rex") {
					t.Errorf("bob got a memory of ana: %s", system)
				}
				if n, err := a.Memories().ForgetMemories(t.Context(), memory.Filter{Subject: "ana"}); err != nil || n < 2 {
					t.Errorf("erased %d: %v", n, err)
				}
				runSessionTurn(t, a, ana, agentsvc.NewID(), "What is my dog called?")
				if system, _, _ := h.lastRequest(); strings.Contains(system, `Rex`) {
					t.Errorf("an erased memory was sent: %s", system)
				}
			})
			if name == "folder" {
				if _, err := os.Stat(filepath.Join(folder, "acme")); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestExampleMemory checks that the example remembers.
func TestExampleMemory(t *testing.T) {
	t.Parallel()
	a := newExampleApp(t, "memory")
	runTurn(t, a, newSubmissionFor("butler", "My dog is called Rex."))
	waitUntilRemembered(t, a, "Rex")
	dbtest.WaitUntil(t, "the agent recalls the dog", func() bool {
		outcome, _ := runTurn(t, a, newSubmissionFor("butler", "What do you recall of my dog?"))
		return strings.Contains(outcome.Status.Message.Text(), `I recall: {"when":`) && strings.Contains(outcome.Status.Message.Text(), "Rex")
	})
}

// TestNoMemory checks that nothing is stored without a memory setting.
func TestNoMemory(t *testing.T) {
	t.Parallel()
	h := startRecordingModel(t)
	a := newMemoryApp(t, dbtest.NewSQLite(t), h, "")
	runSessionTurn(t, a, ana, "first", "My dog is called Rex")
	runSessionTurn(t, a, ana, "second", "What is my dog called?")
	if system, _, tools := h.lastRequest(); system != "Be kind." || tools != nil {
		t.Errorf("the model got %q with %v", system, tools)
	}
	if found, _, err := a.Memories().ListMemories(t.Context(), memory.Filter{Subject: "ana"}, 10, ""); err != nil || found != nil {
		t.Errorf("remembered %v (%v)", found, err)
	}
}

// waitUntilRemembered waits until a text of ana is stored, without a search: the questions are stored as well, and many
// of them would be found before the text.
func waitUntilRemembered(t *testing.T, a *runtime.Runtime, text string) {
	t.Helper()
	dbtest.WaitUntil(t, "the text is remembered", func() bool {
		found, _, err := a.Memories().ListMemories(t.Context(), memory.Filter{Subject: "ana"}, 10, "")
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(found, func(m memory.Memory) bool { return strings.Contains(m.Text, text) })
	})
}

// TestRefusedIsNotRemembered checks that a turn that a model or a guardrail has rejected is not recalled later.
func TestRefusedIsNotRemembered(t *testing.T) {
	t.Parallel()
	a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, source+"\nstorage: {memory: {backend: keyword}}\n", config.Options{}),
		runtime.Tenant{ID: "acme", Name: "acme", Revision: 1}, slog.New(slog.DiscardHandler))
	if outcome, _ := runTurn(t, a, newSubmission("refuse")); outcome.Status.State != agentsvc.Rejected {
		t.Fatalf("the turn ends %s", outcome.Status.State)
	}
	if outcome, _ := runTurn(t, a, newSubmission("harmless")); outcome.Status.State != agentsvc.Completed {
		t.Fatalf("the turn ends %s", outcome.Status.State)
	}
	var found []memory.Memory
	dbtest.WaitUntil(t, "something is remembered", func() (ok bool) {
		var err error
		if found, _, err = a.Memories().ListMemories(t.Context(), memory.Filter{Subject: "ana"}, 10, ""); err != nil {
			t.Fatal(err)
		}
		return len(found) >= 2
	})
	for _, m := range found {
		if strings.Contains(m.Text, "refuse") || strings.Contains(m.Text, "I may not") {
			t.Errorf("remembered: %q", m.Text)
		}
	}
}
