package app_test

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/app"
	"stoa/agentsvc/config"
	"stoa/agentsvc/task"
	"stoa/tenancy/db/dbtest"
)

// TestExamples runs the example of each type of agent.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file, agent, text string
		says              string
		shown             string // in chunks, where that is worth a look
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
		{"fallbacks", "assistant", "hello", "The first model is out of order, so I answer: hello", "The first model is out of order, so I answer: hello"},
		{"checkpoints", "assistant", "add it up", "It is 42.", "It is 42."},
		{"structured-output", "extractor", "Ada Lovelace, born in 1815", `{"name": "Ada Lovelace", "born": 1815}`, ""},
	} {
		t.Run(c.file+" "+c.text, func(t *testing.T) {
			t.Parallel()
			a := example(t, c.file)
			told, lines := call(t, a, ask(c.agent, c.text))
			if told.Status.State != agentsvc.Completed || told.Status.Message.Text() != c.says {
				t.Errorf("%s %q, want %q", told.Status.State, told.Status.Message.Text(), c.says)
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

func example(t *testing.T, name string) *app.App {
	t.Helper()
	src, err := os.ReadFile("../../examples/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return houseOf(t, dbtest.SQLite(t), parsed(t, string(src), config.Options{}), app.Tenant{ID: "acme", Name: "acme", Revision: 1}, slog.New(slog.DiscardHandler))
}

// TestStructuredOutput: the JSON is a data part too, and the card says so.
func TestStructuredOutput(t *testing.T) {
	t.Parallel()
	a := example(t, "structured-output")
	told, _ := call(t, a, ask("extractor", "Ada Lovelace, born in 1815"))
	parts := told.Status.Message.Parts
	want := agentsvc.Part{Data: &agentsvc.Data{MediaType: "application/json", Value: map[string]any{"name": "Ada Lovelace", "born": 1815.0}}}
	if diff := cmp.Diff(want, parts[len(parts)-1]); diff != "" {
		t.Error(diff)
	}
	if c, _ := a.Card("extractor"); !slices.Contains(c.OutputModes, "application/json") {
		t.Errorf("the card says %v", c.OutputModes)
	}
}

// TestCheckpointsExample: the example keeps the restore points that it asks for.
func TestCheckpointsExample(t *testing.T) {
	t.Parallel()
	a := example(t, "checkpoints")
	told, _ := call(t, a, ask("assistant", "add it up"))
	kept, err := a.Tasks().Checkpoints(t.Context(), task.Reach{}, told.ID)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, ev := range kept {
		got = append(got, fmt.Sprint(ev.Checkpoint.Reason, " ", ev.Checkpoint.Step))
	}
	if diff := cmp.Diff([]string{"start 0", "after_tools 1", "after_tools 2", "interval 2"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestRunnerData: a runner takes its first tool's arguments from a data part.
func TestRunnerData(t *testing.T) {
	t.Parallel()
	sub := ask("sum", "")
	sub.Message.Parts = []agentsvc.Part{{Data: &agentsvc.Data{Value: map[string]any{"expression": "2+2"}}}}
	if told, _ := call(t, example(t, "runner"), sub); told.Status.Message.Text() != "4" {
		t.Errorf("%s %q", told.Status.State, told.Status.Message.Text())
	}
}
