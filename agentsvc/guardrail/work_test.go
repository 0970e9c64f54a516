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

// heavy are patterns whose matches are under way in all their states at every character of letters, as large as they may be.
func heavy() (patterns []string) {
	for i := range 6 {
		patterns = append(patterns, fmt.Sprintf("(a|b|c|d|e){%d,%d}Z%d", 100+i, 250+i, i))
	}
	return patterns
}

var letters = strings.Repeat("abcde", 2<<20/5)

const costs = ": it takes more work to check than is allowed"

// TestUnjudged: what takes more work to check than is allowed counts as found. It is blocked where it would have been
// blocked or changed, whatever the form in which it comes, and passes where it would have passed.
func TestUnjudged(t *testing.T) {
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
			g := rail(t, guardrail.Options{
				Shadow: tt.shadow,
				Input:  guardrail.Input{Injection: &guardrail.Injection{Rule: rule, Patterns: heavy()}},
				Output: guardrail.Output{Content: &guardrail.Content{Rule: rule, Patterns: heavy()}},
			})
			stops := tt.act != guardrail.Warn && !tt.shadow
			want := func(check string) []guardrail.Finding {
				return []guardrail.Finding{{Guardrail: "house", Check: check, Action: tt.want, Severity: "high", Shadow: tt.shadow, Unjudged: true}}
			}
			v := input(g, []agentsvc.Entry{user(letters)})
			if diff := cmp.Diff(want("input.injection"), v.Findings); diff != "" || (v.Refusal != "") != stops || stops && !strings.Contains(v.Refusal, "(input.injection"+costs+")") {
				t.Errorf("refused with %q; want -, found +\n%s", v.Refusal, diff)
			}
			later := input(g, []agentsvc.Entry{user(letters), said("x"), user("hello")})
			if text := later.Conversation[0].Message.Text(); later.Refusal != "" || stops != strings.Contains(text, costs) || !stops && text != letters {
				t.Errorf("later %q, and the past reads %.80q", later.Refusal, text)
			}
			for _, size := range []int{len(letters), 100_000, 4099} {
				var pieces []string
				for rest := letters; rest != ""; rest = rest[min(size, len(rest)):] {
					pieces = append(pieces, rest[:min(size, len(rest))])
				}
				got := judge(g, pieces...)
				if diff := cmp.Diff(want("output.content"), got.Found); diff != "" || got.Block != stops || stops && (len(got.text()) > 1000 || !strings.Contains(got.text(), "(output.content"+costs+")")) ||
					!stops && got.text() != letters {
					t.Errorf("pieces of %d: blocked %v, %.200q; want -, found +\n%s", size, got.Block, got.text(), diff)
				}
			}
		})
	}
}

// TestOneCostlyMessage: a conversation of costly messages takes no more work than some of them, and what is short is
// judged beside them.
func TestOneCostlyMessage(t *testing.T) {
	t.Parallel()
	g := rail(t, guardrail.Options{Input: guardrail.Input{Injection: &guardrail.Injection{Patterns: heavy()}}})
	talk := []agentsvc.Entry{user("hello"), user(letters[:100_000]), user("hello"), user("bye")}
	v := input(g, talk)
	if v.Refusal != "" || v.Conversation[0].Message.Text() != "hello" || v.Conversation[2].Message.Text() != "hello" || !strings.Contains(v.Conversation[1].Message.Text(), costs) {
		t.Errorf("%q, %.300q", v.Refusal, fmt.Sprint(v.Conversation))
	}
}

// TestLargeAndUsual: what is large and what there are many of is judged to its end by the built-in phrases, keywords and
// personal data.
func TestLargeAndUsual(t *testing.T) {
	t.Parallel()
	g := rail(t, guardrail.Options{
		Input:  guardrail.Input{Sanitizer: &guardrail.Sanitizer{StripHTML: true, NormalizeUnicode: true}, Injection: &guardrail.Injection{Patterns: []string{`\bsecret\s+word\b`, `[a-z]+@evil\.example`}}},
		Output: guardrail.Output{PII: &everything, Content: &guardrail.Content{Keywords: []string{"falcon", "secret project"}, Patterns: []string{`key-[A-Z]+\d{3}-key`, `(?i)\bproject\s+\w+`}}},
	})
	for name, text := range map[string]string{
		"prose":   strings.Repeat("It is the fourth of 12 letters that I wrote to them, größer als <b>alle</b> davor. ", 1<<19/90),
		"letters": letters[:1<<19],
		"digits":  strings.Repeat("4111-1111 ", 1<<19/10),
		"html":    strings.Repeat("<p><i>x</i>", 1<<19/11),
		"chinese": strings.Repeat("秘密的计划在这里。", 1<<19/27),
	} {
		v := input(g, []agentsvc.Entry{user(text)})
		if got := judge(g, text); v.Refusal != "" || got.Block {
			t.Errorf("%s: refused with %q, blocked %v", name, v.Refusal, got.Found)
		}
	}
}

// TestContextEnds: a judgement ends with its context, at the next look at it, and nothing passes.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	g := rail(t, guardrail.Options{
		Input:  guardrail.Input{Sanitizer: &guardrail.Sanitizer{StripHTML: true}, Injection: &guardrail.Injection{Patterns: heavy()}},
		Output: guardrail.Output{Content: &guardrail.Content{Patterns: heavy()}},
	})
	ctx := &ends{Context: t.Context(), after: 3}
	if v, err := g.Input(ctx, []agentsvc.Entry{user(letters)}); !errors.Is(err, context.Canceled) || ctx.looks > 6 || v.Findings != nil {
		t.Errorf("%v after %d looks, found %v", err, ctx.looks, v.Findings)
	}
	ctx = &ends{Context: t.Context(), after: 3}
	a := g.Answer(ctx)
	if p := a.Text(letters); p.Text != "" || !errors.Is(a.Err(), context.Canceled) || ctx.looks != 3 || a.Findings() != nil || !a.Blocked() {
		t.Errorf("%.40q passed, %v after %d looks, found %v", p.Text, a.Err(), ctx.looks, a.Findings())
	}
	if p := a.End(); p.Text != "" {
		t.Errorf("%q passed after the end", p.Text)
	}
}

// ends is a context that has ended after some looks at it.
type ends struct {
	context.Context
	after, looks int
}

func (c *ends) Err() error {
	if c.looks++; c.looks >= c.after {
		return context.Canceled
	}
	return nil
}
