package runtime_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/config/configfile"
	"stoa/agentsvc/embedder/embeddertest"
	"stoa/agentsvc/llm/llmtest"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/task"
	"stoa/tenancy/db/dbtest"
)

// TestEveryExample checks that each example is valid as it is, and that a test of this package runs it.
func TestEveryExample(t *testing.T) {
	t.Parallel()
	tests, _ := filepath.Glob("*_test.go")
	var run strings.Builder
	for _, file := range tests {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		run.Write(src)
	}
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no examples: %v", err)
	}
	noVariables := func(string) (string, bool) { return "", false }
	for _, file := range files {
		src, err := configfile.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		o, err := configfile.NewOptions(file, noVariables)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := config.Parse(src, o); err != nil {
			t.Error(err)
		}
		if name := strings.TrimSuffix(filepath.Base(file), ".yaml"); !strings.Contains(run.String(), `"`+name+`"`) && !strings.Contains(run.String(), "examples/"+name+".yaml") {
			t.Errorf("nobody runs the example %s", name)
		}
	}
}

// TestExamples runs the example of each type of agent.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file, agent, text string
		says              string
		shown             string // the text of the chunks, where the test compares it
	}{
		{"sequential", "article", "tea", "An article along these lines: 1. Where tea comes from. 2. How it is made.", "An article along these lines: 1. Where tea comes from. 2. How it is made."},
		{"parallel", "review", "The shop opens at nine.", "Print it.", "Print it."},
		{"parallel", "readers", "The shop opens at nine.", "facts:\nThe facts are right.\n\nstyle:\nThe style is plain.", ""},
		{"loop", "poet", "the sea", "The sea is wide and blue and never still.", ""},
		{"runner", "sum", "6 * 7", "42", "42"},
		{"sub-agents", "desk", "my invoice is wrong", "We have corrected your invoice.", "We have corrected your invoice."},
		{"sub-agents", "desk", "my invoice is on fire", "We are on our way.", "We are on our way."},
		{"sub-agents", "desk", "good morning", "Good morning. What can we do for you?", "Good morning. What can we do for you?"},
		{"agent-tools", "planner", "a day in Rome", "Here is your day. Eat cacio e pepe.", "Here is your day. Eat cacio e pepe."},
		{"reasoning", "thinker", "why is the sky blue?", "Because short waves scatter most.", "Light is scattered in the air. Which waves most?"},
		{"default", "assistant", "6 * 7", "That makes 42.", "That makes 42."},
		{"acme", "assistant", "What is the price of 2 anvils?", "That comes to 99 dollars, delivery included.", "That comes to 99 dollars, delivery included."},
		{"acme", "bookkeeper", "The report, please.", "Here is the report.", "Here is the report."},
		{"documents", "assistant", "How long is the warranty?", "The manual does not say.", "The manual does not say."}, // nothing is uploaded
		{"auth", "assistant", "hello", "You said: hello", "You said: hello"},
		{"studio", "assistant", "hello", "You said: hello", "You said: hello"},
		{"globex", "assistant", "count to three", "one two three!", "one two three!"},
		{"fallbacks", "assistant", "hello", "The first model is out of order, so I answer: hello", "The first model is out of order, so I answer: hello"},
		{"guardrails", "desk", "Who wrote this?", "You said: reader:\nIt was ***.**@*******.***, telephone +49 30 1234567. Ask her.",
			"You said: reader:\nIt was ***.**@*******.***, telephone +49 30 1234567. Ask her."},
		{"checkpoints", "assistant", "add it up", "It is 42.", "It is 42."},
		{"notifications", "reporter", "report", "The report is ready.", "The report is ready."},
		{"notifications", "assistant", "write the report", "The report is ready.", "The report is ready."},
		{"structured-output", "extractor", "Ada Lovelace, born in 1815", `{"name": "Ada Lovelace", "born": 1815}`, ""},
	} {
		t.Run(c.file+" "+c.text, func(t *testing.T) {
			t.Parallel()
			a := newExampleApp(t, c.file)
			outcome, lines := runTurn(t, a, newSubmissionFor(c.agent, c.text))
			if outcome.Status.State != agentsvc.Completed || outcome.Status.Message.Text() != c.says {
				t.Errorf("%s %q, want %q", outcome.Status.State, outcome.Status.Message.Text(), c.says)
			}
			shown := ""
			for _, l := range lines {
				if len(l) > 6 && l[:6] == "chunk " {
					shown += l[6:]
				}
			}
			if shown != c.shown {
				t.Errorf("shown %q, want %q", shown, c.shown)
			}
		})
	}
}

func newExampleApp(t *testing.T, name string) *runtime.Runtime {
	t.Helper()
	cfg := mustParse(t, readExample(t, name), config.Options{})
	return newAppWith(t, dbtest.NewSQLite(t), cfg, runtime.Tenant{ID: "acme", Name: "acme", Revision: 1}, slog.New(slog.DiscardHandler))
}

func readExample(t *testing.T, name string) string {
	t.Helper()
	src, err := os.ReadFile("../../examples/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(src)
}

// TestExampleModels runs the example of each vendor against a server that implements its protocol.
func TestExampleModels(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, agent, path, base string }{
		{"model-anthropic", "assistant", "/v1/messages", ""},
		{"model-gemini", "viewer", "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", ""},
		{"model-ollama", "assistant", "/api/chat", ""},
		{"model-openai", "assistant", "/v1/chat/completions", "/v1"},
		{"model-openai", "reasoner", "/v1/responses", "/v1"},
	} {
		t.Run(c.file+" "+c.agent, func(t *testing.T) {
			t.Parallel()
			srv := llmtest.NewServer(t, []llmtest.Reply{{UserText: "hi", Pieces: []string{"Hello."}}})
			keys := func(name string) (string, bool) {
				if strings.HasSuffix(name, "_KEY") {
					return llmtest.Key, true
				}
				return "", false
			}
			cfg := mustParse(t, readExample(t, c.file), config.Options{Lookup: keys})
			for _, l := range cfg.LLMs {
				l.BaseURL = srv.URL + c.base
			}
			a := newAppWith(t, dbtest.NewSQLite(t), cfg, runtime.Tenant{ID: "default", Name: "default", Revision: 1, DefaultApp: true, PrivateNetwork: true}, slog.New(slog.DiscardHandler))
			outcome, _ := runTurn(t, a, newSubmissionFor(c.agent, "hi"))
			if requested := srv.Requests(); outcome.Status.Message.Text() != "Hello." || requested[0].URL != c.path {
				t.Errorf("%s %q, asked %s", outcome.Status.State, outcome.Status.Message.Text(), requested[0].URL)
			}
		})
	}
}

// TestExampleContext checks for each strategy that the conversation that a model receives stops growing.
func TestExampleContext(t *testing.T) {
	t.Parallel()
	a := newExampleApp(t, "context")
	for _, agent := range []string{"latest", "budget", "summary"} {
		var read []float64
		for range 8 {
			sub := newSubmissionFor(agent, "Tell me more.")
			sub.Message.Context = agentsvc.ContextID(agent)
			outcome, _ := runTurn(t, a, sub)
			used, _ := outcome.Status.Message.Metadata["tokens_used"].(map[string]any)
			n, _ := used["input"].(float64)
			read = append(read, n)
		}
		if read[1] <= read[0] || slices.Min(read[4:]) > 80 { // the whole is 95 at the fifth turn; the tokens of a summary count too
			t.Errorf("%s reads %v tokens", agent, read)
		}
	}
}

// TestExampleVectors runs the example that finds a text of another conversation by its meaning.
func TestExampleVectors(t *testing.T) {
	t.Parallel()
	url := embeddertest.NewServer(t).URL
	cfg := mustParse(t, readExample(t, "memory-vector"), config.Options{Lookup: func(string) (string, bool) { return url, true }})
	a := newAppWith(t, dbtest.NewSQLite(t), cfg, runtime.Tenant{ID: "default", Name: "default", Revision: 1, DefaultApp: true, PrivateNetwork: true}, slog.New(slog.DiscardHandler))
	runTurn(t, a, newSubmissionFor("butler", "My dog is called Rex."))
	dbtest.WaitUntil(t, "the agent recalls the dog", func() bool {
		outcome, _ := runTurn(t, a, newSubmissionFor("butler", "What do you recall of my dog is called Rex?"))
		return strings.Contains(outcome.Status.Message.Text(), `"said":"My dog is called Rex."`)
	})
}

// TestStructuredOutput checks that the JSON is a data part as well, and that the card lists its media type.
func TestStructuredOutput(t *testing.T) {
	t.Parallel()
	a := newExampleApp(t, "structured-output")
	outcome, _ := runTurn(t, a, newSubmissionFor("extractor", "Ada Lovelace, born in 1815"))
	parts := outcome.Status.Message.Parts
	want := agentsvc.Part{Data: &agentsvc.Data{MediaType: "application/json", Value: map[string]any{"name": "Ada Lovelace", "born": 1815.0}}}
	if diff := cmp.Diff(want, parts[len(parts)-1]); diff != "" {
		t.Error(diff)
	}
	if c, _ := a.Card("extractor"); !slices.Contains(c.OutputModes, "application/json") {
		t.Errorf("the card says %v", c.OutputModes)
	}
}

// TestCheckpointsExample checks that the example stores the checkpoints that it configures.
func TestCheckpointsExample(t *testing.T) {
	t.Parallel()
	a := newExampleApp(t, "checkpoints")
	outcome, _ := runTurn(t, a, newSubmissionFor("assistant", "add it up"))
	stored, err := a.Tasks().Checkpoints.List(t.Context(), task.Visibility{}, outcome.ID)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, ev := range stored {
		got = append(got, fmt.Sprint(ev.Checkpoint.Reason, " ", ev.Checkpoint.Step))
	}
	if diff := cmp.Diff([]string{"start 0", "after_tools 1", "after_tools 2", "interval 2"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestRunnerData checks that a runner takes its first tool's arguments from a data part.
func TestRunnerData(t *testing.T) {
	t.Parallel()
	sub := newSubmissionFor("sum", "")
	sub.Message.Parts = []agentsvc.Part{{Data: &agentsvc.Data{Value: map[string]any{"expression": "2+2"}}}}
	if outcome, _ := runTurn(t, newExampleApp(t, "runner"), sub); outcome.Status.Message.Text() != "4" {
		t.Errorf("%s %q", outcome.Status.State, outcome.Status.Message.Text())
	}
}
