package guardrail_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/guardrail"
)

// heavyPatterns returns patterns of the largest permitted size whose matches are in progress in all their states at
// every letter.
func heavyPatterns() (patterns []string) {
	for i := range 6 {
		patterns = append(patterns, fmt.Sprintf("(a|b|c|d|e){%d,%d}Z%d", 100+i, 250+i, i))
	}
	return patterns
}

var letters = strings.Repeat("abcde", 2<<20/5)

const tooCostlyText = ": it takes more work to check than is allowed"

// TestUnevaluated checks that a text that takes more work than permitted counts as matched: it is blocked where a match
// would have blocked or changed it, in whatever form it arrives, and passes otherwise.
func TestUnevaluated(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		act    guardrail.Action
		shadow bool
		want   guardrail.Action
	}{
		{guardrail.Block, false, guardrail.Block}, {guardrail.Modify, false, guardrail.Block}, {guardrail.Warn, false, guardrail.Warn},
		{guardrail.Block, true, guardrail.Block}, {guardrail.Modify, true, guardrail.Block},
	} {
		t.Run(fmt.Sprint(tt.act, tt.shadow), func(t *testing.T) {
			t.Parallel()
			rule := guardrail.Rule{Action: tt.act, Severity: "high"}
			g := newGuardrail(t, guardrail.Options{
				Shadow: tt.shadow,
				Input:  guardrail.Input{Injection: &guardrail.Injection{Rule: rule, Patterns: heavyPatterns()}},
				Output: guardrail.Output{Content: &guardrail.Content{Rule: rule, Patterns: heavyPatterns()}},
			})
			stops := tt.act != guardrail.Warn && !tt.shadow
			want := func(check string) []guardrail.Finding {
				return []guardrail.Finding{{Guardrail: "house", Check: check, Action: tt.want, Severity: "high", Shadow: tt.shadow, Unevaluated: true}}
			}
			v := evaluateInput(g, []agentsvc.Entry{newUserEntry(letters)})
			if diff := cmp.Diff(want("input.injection"), v.Findings); diff != "" || (v.Refusal != "") != stops || stops && !strings.Contains(v.Refusal, "(input.injection"+tooCostlyText+")") {
				t.Errorf("refused with %q; want -, found +\n%s", v.Refusal, diff)
			}
			later := evaluateInput(g, []agentsvc.Entry{newUserEntry(letters), newAgentEntry("x"), newUserEntry("hello")})
			if text := later.Conversation[0].Message.Text(); later.Refusal != "" || stops != strings.Contains(text, tooCostlyText) || !stops && text != letters {
				t.Errorf("later %q, and the past reads %.80q", later.Refusal, text)
			}
			for _, size := range []int{len(letters), 100_000, 4099} {
				var pieces []string
				for rest := letters; rest != ""; rest = rest[min(size, len(rest)):] {
					pieces = append(pieces, rest[:min(size, len(rest))])
				}
				got := evaluateAnswer(g, pieces...)
				if diff := cmp.Diff(want("output.content"), got.Found); diff != "" || got.Block != stops || stops && (len(got.joinPieces()) > 1000 || !strings.Contains(got.joinPieces(), "(output.content"+tooCostlyText+")")) ||
					!stops && got.joinPieces() != letters {
					t.Errorf("pieces of %d: blocked %v, %.200q; want -, found +\n%s", size, got.Block, got.joinPieces(), diff)
				}
			}
		})
	}
}

// TestOneCostlyMessage checks that a conversation of costly messages takes no more work than some of them, and that
// short messages in it are still evaluated.
func TestOneCostlyMessage(t *testing.T) {
	t.Parallel()
	g := newGuardrail(t, guardrail.Options{Input: guardrail.Input{Injection: &guardrail.Injection{Patterns: heavyPatterns()}}})
	conversation := []agentsvc.Entry{newUserEntry("hello"), newUserEntry(letters[:100_000]), newUserEntry("hello"), newUserEntry("bye")}
	v := evaluateInput(g, conversation)
	if v.Refusal != "" || v.Conversation[0].Message.Text() != "hello" || v.Conversation[2].Message.Text() != "hello" || !strings.Contains(v.Conversation[1].Message.Text(), tooCostlyText) {
		t.Errorf("%q, %.300q", v.Refusal, fmt.Sprint(v.Conversation))
	}
}

// TestLargeAndUsual checks that large texts and many messages are evaluated completely by the built-in phrases,
// keywords and kinds of personal data.
func TestLargeAndUsual(t *testing.T) {
	t.Parallel()
	g := newGuardrail(t, guardrail.Options{
		Input:  guardrail.Input{Sanitizer: &guardrail.Sanitizer{StripHTML: true, NormalizeUnicode: true}, Injection: &guardrail.Injection{Patterns: []string{`\bsecret\s+word\b`, `[a-z]+@evil\.example`}}},
		Output: guardrail.Output{PII: &allPII, Content: &guardrail.Content{Keywords: []string{"falcon", "secret project"}, Patterns: []string{`key-[A-Z]+\d{3}-key`, `(?i)\bproject\s+\w+`}}},
	})
	for name, text := range map[string]string{
		"prose":   strings.Repeat("It is the fourth of 12 letters that I wrote to them, größer als <b>alle</b> davor. ", 1<<19/90),
		"letters": letters[:1<<19],
		"digits":  strings.Repeat("4111-1111 ", 1<<19/10),
		"html":    strings.Repeat("<p><i>x</i>", 1<<19/11),
		"chinese": strings.Repeat("秘密的计划在这里。", 1<<19/27),
	} {
		v := evaluateInput(g, []agentsvc.Entry{newUserEntry(text)})
		if got := evaluateAnswer(g, text); v.Refusal != "" || got.Block {
			t.Errorf("%s: refused with %q, blocked %v", name, v.Refusal, got.Found)
		}
	}
}

// TestContextEnds checks that an evaluation ends at the first check after its context's end, and that nothing is
// allowed.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	g := newGuardrail(t, guardrail.Options{
		Input:  guardrail.Input{Sanitizer: &guardrail.Sanitizer{StripHTML: true}, Injection: &guardrail.Injection{Patterns: heavyPatterns()}},
		Output: guardrail.Output{Content: &guardrail.Content{Patterns: heavyPatterns()}},
	})
	ctx := &endingContext{Context: t.Context(), endsAfter: 3}
	if v, err := g.EvaluateInput(ctx, []agentsvc.Entry{newUserEntry(letters)}); !errors.Is(err, context.Canceled) || ctx.errCalls > 6 || v.Findings != nil {
		t.Errorf("%v after %d looks, found %v", err, ctx.errCalls, v.Findings)
	}
	ctx = &endingContext{Context: t.Context(), endsAfter: 3}
	a := g.NewAnswerCheck(ctx)
	if p := a.CheckText(letters); p.Text != "" || !errors.Is(a.Err(), context.Canceled) || ctx.errCalls != 3 || a.Findings() != nil || !a.IsBlocked() {
		t.Errorf("%.40q passed, %v after %d looks, found %v", p.Text, a.Err(), ctx.errCalls, a.Findings())
	}
	if p := a.EndAnswer(); p.Text != "" {
		t.Errorf("%q passed after the end", p.Text)
	}
}

// endingContext is a context that ends after a number of checks.
type endingContext struct {
	context.Context
	endsAfter, errCalls int
}

func (c *endingContext) Err() error {
	if c.errCalls++; c.errCalls >= c.endsAfter {
		return context.Canceled
	}
	return nil
}
