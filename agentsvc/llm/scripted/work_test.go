package scripted_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/scripted"
	"stoa/agentsvc/pattern"
)

// TestCostlyText checks that a text which exceeds the step budget of a script's patterns ends the turn with an error
// before any rule answers, and that the end of the context ends the matching.
func TestCostlyText(t *testing.T) {
	t.Parallel()
	p := newProvider(t, scripted.Options{Script: []scripted.Rule{
		{When: scripted.When{Text: `(?P<x>(a|b|c|d|e){300,600})Z`}, Then: []scripted.Item{{Text: "found"}}},
		{Then: []scripted.Item{{Text: "not found"}}},
	}})
	text := strings.Repeat("abcde", 2<<20/5)
	chunks, err := collectChunks(t, p, userMessage("m", text))
	if !errors.Is(err, agentsvc.CodeInvalid) || !strings.Contains(err.Error(), "the patterns of the script") || !strings.Contains(err.Error(), pattern.ErrTooManySteps.Error()) || len(chunks) > 0 {
		t.Errorf("%v, %d chunks", err, len(chunks))
	}
	ctx := &endingContext{Context: t.Context(), maxErrCalls: 5}
	for _, err = range p.Stream(ctx, llm.Request{Conversation: []agentsvc.Entry{userMessage("m", text)}}) {
		if !errors.Is(err, context.Canceled) || ctx.errCalls != 5 {
			t.Errorf("%v after %d looks at the context", err, ctx.errCalls)
		}
	}
}

// TestManyRules checks that a long text can be matched against as many usual rules as a script has.
func TestManyRules(t *testing.T) {
	t.Parallel()
	var script []scripted.Rule
	for _, word := range strings.Fields("one two three four five six seven eight nine ten eleven twelve") {
		for _, expr := range []string{`^` + word + ` (?P<n>\S+)`, `(?i)\b` + word + `s?\b\s+is`, word + `: (?P<n>\d+)$`} {
			script = append(script, scripted.Rule{When: scripted.When{Text: expr}, Then: []scripted.Item{{Text: word}}})
		}
	}
	script = append(script, scripted.Rule{Then: []scripted.Item{{Text: "none"}}})
	chunks, err := collectChunks(t, newProvider(t, scripted.Options{Script: script}), userMessage("m", strings.Repeat("It is the fourth of 12 letters. ", 2<<20/32)))
	if err != nil || chunks[0].Text != "none" {
		t.Errorf("%v, %v", chunks, err)
	}
}

// TestOverfull checks that placeholders cannot make an answer larger than permitted.
func TestOverfull(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("{{text}}", 2000)
	for name, it := range map[string]scripted.Item{
		"say":      {Text: many},
		"call":     {Call: &scripted.Call{Tool: "t", Arguments: map[string]any{"a": []any{many}}}},
		"artifact": {Artifact: &scripted.Artifact{Name: "a", Text: many}},
		"data":     {Artifact: &scripted.Artifact{Name: "a", Data: map[string]any{"a": many}}},
		"ask":      {Question: many},
	} {
		chunks, err := collectChunks(t, newProvider(t, scripted.Options{Script: []scripted.Rule{{Then: []scripted.Item{it}}}}), userMessage("m", strings.Repeat("x", 1<<20)))
		if err == nil || !strings.Contains(err.Error(), "an answer of more than 4194304 bytes") || len(chunks) > 0 {
			t.Errorf("%s: %v, %d chunks", name, err, len(chunks))
		}
	}
}

// endingContext is a context that ends after a number of checks.
type endingContext struct {
	context.Context
	maxErrCalls, errCalls int
}

func (c *endingContext) Err() error {
	if c.errCalls++; c.errCalls >= c.maxErrCalls {
		return context.Canceled
	}
	return nil
}
