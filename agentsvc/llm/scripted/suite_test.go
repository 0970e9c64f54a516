package scripted_test

import (
	"encoding/json"
	"regexp"
	"testing"
	"time"

	"go.uber.org/goleak"

	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/llmtest"
	"stoa/agentsvc/llm/scripted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSuite(t *testing.T) {
	llmtest.Run(t, func(t *testing.T, script []llmtest.Turn) llmtest.Subject {
		var opts scripted.Options
		for _, turn := range script {
			opts.Script = append(opts.Script, rule(t, turn))
		}
		return llmtest.Subject{Provider: provider(t, opts), Refuses: true}
	})
}

func provider(t *testing.T, opts scripted.Options) *scripted.Provider {
	t.Helper()
	p, err := scripted.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// rule says in a script what a turn asks for.
func rule(t *testing.T, turn llmtest.Turn) scripted.Rule {
	t.Helper()
	r := scripted.Rule{When: scripted.When{ToolResult: turn.Tool}}
	if turn.Tool == "" {
		r.When.Text = "^" + regexp.QuoteMeta(turn.Text) + "$"
	}
	if turn.Usage.InputTokens > 0 {
		r.Then = append(r.Then, scripted.Item{Usage: &scripted.Usage{InputTokens: turn.Usage.InputTokens, OutputTokens: turn.Usage.OutputTokens}})
	}
	var whole string
	for _, piece := range turn.Say {
		whole += piece
	}
	switch {
	case turn.Stop == llm.StopRefusal:
		r.Then = append(r.Then, scripted.Item{Refuse: whole})
	case turn.Status != 0:
		r.Then = append(r.Then, scripted.Item{Fail: &scripted.Fail{Status: turn.Status}})
	case whole != "":
		r.Then = append(r.Then, scripted.Item{Say: whole})
	}
	for _, call := range turn.Calls {
		var args map[string]any
		if err := json.Unmarshal(call.Arguments, &args); err != nil {
			t.Fatal(err)
		}
		r.Then = append(r.Then, scripted.Item{Call: &scripted.Call{Tool: call.Name, Arguments: args}})
	}
	if turn.Hang {
		r.Then = append(r.Then, scripted.Item{Pause: 10 * time.Minute})
	}
	return r
}
