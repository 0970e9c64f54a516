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
	llmtest.RunSuite(t, func(t *testing.T, script []llmtest.Reply) llmtest.Subject {
		var opts scripted.Options
		for _, reply := range script {
			opts.Script = append(opts.Script, newRule(t, reply))
		}
		return llmtest.Subject{Provider: newProvider(t, opts), ReportsRefusal: true}
	})
}

func newProvider(t *testing.T, opts scripted.Options) *scripted.Provider {
	t.Helper()
	p, err := scripted.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// newRule returns the rule of a script for a reply of the suite.
func newRule(t *testing.T, reply llmtest.Reply) scripted.Rule {
	t.Helper()
	r := scripted.Rule{When: scripted.When{ToolResult: reply.ToolName}}
	if reply.ToolName == "" {
		r.When.Text = "^" + regexp.QuoteMeta(reply.UserText) + "$"
	}
	if reply.Usage.InputTokens > 0 {
		r.Then = append(r.Then, scripted.Item{Usage: &scripted.Usage{InputTokens: reply.Usage.InputTokens, OutputTokens: reply.Usage.OutputTokens}})
	}
	var fullText string
	for _, piece := range reply.Pieces {
		fullText += piece
	}
	switch {
	case reply.Stop == llm.StopRefusal:
		r.Then = append(r.Then, scripted.Item{Refusal: fullText})
	case reply.Status != 0:
		r.Then = append(r.Then, scripted.Item{Failure: &scripted.Failure{Status: reply.Status}})
	case fullText != "":
		r.Then = append(r.Then, scripted.Item{Text: fullText})
	}
	for _, call := range reply.Calls {
		var args map[string]any
		if err := json.Unmarshal(call.Arguments, &args); err != nil {
			t.Fatal(err)
		}
		r.Then = append(r.Then, scripted.Item{Call: &scripted.Call{Tool: call.Name, Arguments: args}})
	}
	if reply.Hang {
		r.Then = append(r.Then, scripted.Item{Pause: 10 * time.Minute})
	}
	return r
}
