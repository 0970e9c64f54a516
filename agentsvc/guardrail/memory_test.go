package guardrail_test

import (
	"runtime"
	"strings"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/guardrail"
)

// TestMemory checks what judging a text allocates in proportion to the text, what is freed meanwhile included. It
// measures all that is allocated, and so is not parallel.
func TestMemory(t *testing.T) {
	const size = 1 << 20
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	input := func(in guardrail.Input) func(string) {
		g := newGuardrail(t, guardrail.Options{Input: in})
		return func(text string) { evaluateInput(g, []agentsvc.Entry{newUserEntry(text)}) }
	}
	output := func(out guardrail.Output) func(string) {
		g := newGuardrail(t, guardrail.Options{Output: out})
		return func(text string) { evaluateAnswer(g, text) }
	}
	strip := input(guardrail.Input{Sanitizer: &guardrail.Sanitizer{StripHTML: true}})
	normalize := input(guardrail.Input{Sanitizer: &guardrail.Sanitizer{NormalizeUnicode: true}})
	remove := input(guardrail.Input{Injection: &guardrail.Injection{Rule: guardrail.Rule{Action: guardrail.Modify}, Patterns: []string{"x"}}})
	hash := allPII
	hash.Redaction = guardrail.Hash
	redact := output(guardrail.Output{PII: &hash})
	content := output(guardrail.Output{Content: &guardrail.Content{Rule: guardrail.Rule{Action: guardrail.Modify}, Patterns: []string{"@"}}})
	for _, c := range []struct {
		name      string
		evaluate  func(string)
		text      string
		maxFactor float64
	}{
		{"strip", strip, fill("<<<<b>b>b>b>"), 8},
		{"strip text", strip, fill("a < b and "), 8},
		{"strip tags", strip, fill("<p>text "), 8},
		{"normalize", normalize, fill("\u0301a\u0301\u0301"), 8},
		{"normalize kana", normalize, fill("\uff71\uff9e"), 8},
		{"remove all", remove, fill("x"), 8},
		{"remove some", remove, fill("text and ex"), 8},
		{"remove folded", remove, fill("\uff58 \ufdfa"), 8},
		{"mail", redact, fill("a@b.cc "), 8},
		{"mail 2", redact, fill("@a@b.c"), 8},
		{"cards", redact, fill("4111111111111111 "), 8},
		{"digits", redact, fill("1 "), 16},
		{"prose", redact, fill("It is the fourth letter that I wrote. "), 8},
		{"content", content, fill("@"), 8},
	} {
		c.evaluate(c.text[:100]) // what is allocated once
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c.evaluate(c.text)
		runtime.ReadMemStats(&after)
		factor := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(c.text))
		if factor > c.maxFactor {
			t.Errorf("%s: %.1f times the text are allocated, want at most %.0f times", c.name, factor, c.maxFactor)
		}
	}
}
