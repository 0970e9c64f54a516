package guardrail_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"stoa/agentsvc"
	"stoa/agentsvc/guardrail"
)

// newGuardrail returns a guardrail or fails the test.
func newGuardrail(t testing.TB, o guardrail.Options) *guardrail.Guardrail {
	t.Helper()
	g, err := guardrail.New("house", o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// answerResult is the outcome of an answer: the allowed output, piece by piece, and the findings.
type answerResult struct {
	Pieces []string
	Found  []guardrail.Finding
	Block  bool
}

func (a answerResult) joinPieces() string { return strings.Join(a.Pieces, "") }

func evaluateAnswer(g *guardrail.Guardrail, pieces ...string) answerResult {
	a := g.NewAnswerCheck(context.Background())
	var out answerResult
	for _, p := range pieces {
		out.Pieces = append(out.Pieces, a.CheckText(p).Text)
	}
	out.Pieces = append(out.Pieces, a.EndAnswer().Text)
	out.Found, out.Block = slices.Clone(a.Findings()), a.IsBlocked()
	return out
}

// sampleTexts are texts with and without matches.
var sampleTexts = []string{
	"",
	"Nothing to see here.",
	"Write to ana.li@example.co.uk, or to bob@x.org.",
	"Call +49 30 1234567 or (202) 555-0123 or 1-202-555-0199, not 12345.",
	"My number is 123-45-6789; 000-12-3456 is none.",
	"Card 4111 1111 1111 1111 exp 12/27, or 4111111111111111, not 4111 1111 1111 1112.",
	"The secret project Falcon, the Secret  Project falcon, the secrets projects.",
	"key-ABC123-key key-XYZ999-key",
	"BEGIN this must not be seen END and BEGIN this never ends",
	"größe müller@beispiel.de 秘密 4111\u00a01111\u00a01111\u00a01111 tail\xff\xfe",
	"a@b.c d@e.fg h@i.jk",
	"x.x.x.x.x@",
	"+1 202 555 0123 4111-1111-1111-1111 123-45-6789 bob@example.com Falcon",
	strings.Repeat("word ", 9) + "bob@example.com" + strings.Repeat(" word", 9),
}

var allPII = guardrail.PII{Email: true, Phone: true, SSN: true, CreditCard: true}

func outputVariants() map[string]guardrail.Output {
	pii := func(a guardrail.Action, r guardrail.Redaction) *guardrail.PII {
		p := allPII
		p.Action, p.Redaction = a, r
		return &p
	}
	content := func(a guardrail.Action) *guardrail.Content {
		return &guardrail.Content{Rule: guardrail.Rule{Action: a}, Keywords: []string{"secret project", "秘密", "Falcon"},
			Patterns: []string{`key-[A-Z]+\d{3}-key`, `BEGIN.*END`, `(?m)^x[.]|\bone\b`}}
	}
	return map[string]guardrail.Output{
		"redact":             {PII: pii("", "")},
		"remove":             {PII: pii(guardrail.Modify, guardrail.Remove)},
		"hash":               {PII: pii(guardrail.Modify, guardrail.Hash)},
		"block content":      {PII: pii("", ""), Content: content("")},
		"modify content":     {PII: pii("", ""), Content: content(guardrail.Modify)},
		"block pii":          {PII: pii(guardrail.Block, ""), Content: content(guardrail.Modify)},
		"warn":               {PII: pii(guardrail.Warn, ""), Content: content(guardrail.Allow)},
		"warn, then block":   {PII: pii(guardrail.Warn, ""), Content: content(guardrail.Block)},
		"collect all, block": {CollectAll: true, PII: pii("", ""), Content: content("")},
		"collect all":        {CollectAll: true, PII: pii("", ""), Content: content(guardrail.Modify)},
	}
}

// TestSameResultStreamedOrNot checks that output and findings do not depend on the pieces of the answer.
func TestSameResultStreamedOrNot(t *testing.T) {
	t.Parallel()
	for name, o := range outputVariants() {
		for _, shadow := range []bool{false, true} {
			g := newGuardrail(t, guardrail.Options{Shadow: shadow, Output: o})
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for _, text := range sampleTexts {
					want := evaluateAnswer(g, text)
					bytes := strings.Split(text, "")
					for at := range len(text) + 1 { // every chunking in two, and in three around each byte
						requireSameResult(t, want, evaluateAnswer(g, text[:at], text[at:]))
						if at < len(text) && !shadow {
							requireSameResult(t, want, evaluateAnswer(g, text[:at], text[at:at+1], text[at+1:]))
						}
					}
					requireSameResult(t, want, evaluateAnswer(g, bytes...))
					if shadow && want.joinPieces() != text {
						t.Errorf("in the shadow %q became %q", text, want.joinPieces())
					}
				}
				rapid.Check(t, func(t *rapid.T) {
					text := rapid.OneOf(rapid.SampledFrom(sampleTexts), generatedTexts).Draw(t, "text")
					var pieces []string
					for rest := text; rest != ""; {
						n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
						pieces = append(pieces, rest[:n])
						rest = rest[n:]
					}
					requireSameResult(t, evaluateAnswer(g, text), evaluateAnswer(g, pieces...))
				})
			})
		}
	}
}

// generatedTexts generates texts of pieces that nearly match, or match only together.
var generatedTexts = rapid.Custom(func(t *rapid.T) string {
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
		"4111", "1111", " ", "-", "411111", "bob", "@", "x", ".", "org", "+49", "(202)", "555", "0123", "123", "45", "6789", "secret", "project",
		"Falcon", "key-", "ABC", "BEGIN", "END", "\n", "one", "é", "\xc3", "秘", "密", "s",
	}), 0, 30).Draw(t, "words"), "")
})

func requireSameResult(t interface {
	Errorf(string, ...any)
	Helper()
}, want, got answerResult) {
	t.Helper()
	if diff := cmp.Diff(want.joinPieces(), got.joinPieces()); diff != "" {
		t.Errorf("pieces %q: whole -, in pieces +\n%s", got.Pieces, diff)
	}
	if diff := cmp.Diff(want.Found, got.Found); diff != "" || want.Block != got.Block {
		t.Errorf("pieces %q: whole -, in pieces +\n%s", got.Pieces, diff)
	}
}

// TestNothingForbiddenIsSeen checks that package regexp finds nothing in the allowed text, at any moment.
func TestNothingForbiddenIsSeen(t *testing.T) {
	t.Parallel()
	patterns := []string{`ab+c`, `(?i)\bfal\w{0,3}n\b`, `x[^y]*y`, `(?:aa|aab)c?`, `^top`, `end$`, `(?m)^l\d`, `é.`, `(?s)q.q`}
	engine := regexp.MustCompile("(?:" + strings.Join(patterns, ")|(?:") + ")")
	alphabet := []string{"a", "b", "c", "x", "y", "fal", "con", "n", " ", "top", "end", "\n", "l1", "é", "q", "\xff"}
	for _, action := range []guardrail.Action{guardrail.Modify, guardrail.Block} {
		g := newGuardrail(t, guardrail.Options{Output: guardrail.Output{Content: &guardrail.Content{Rule: guardrail.Rule{Action: action}, Patterns: patterns}}})
		rapid.Check(t, func(t *rapid.T) {
			pieces := rapid.SliceOfN(rapid.SampledFrom(alphabet), 0, 20).Draw(t, "pieces")
			text := strings.Join(pieces, "")
			first := engine.FindStringIndex(text)
			got := evaluateAnswer(g, pieces...)
			if (first != nil) != (len(got.Found) > 0) {
				t.Fatalf("%q: engine finds %v, we %v", text, first, got.Found)
			}
			if first == nil {
				if got.joinPieces() != text {
					t.Fatalf("%q became %q without a finding", text, got.joinPieces())
				}
				return
			}
			passed := got.joinPieces()
			if action == guardrail.Block {
				passed, _, _ = strings.Cut(passed, "\n\nThe rest of the answer was withheld")
				if !got.Block || (passed != text[:first[0]] && !strings.HasPrefix(passed, "The answer was withheld")) {
					t.Fatalf("%q: %q passed, want %q", text, passed, text[:first[0]])
				}
				return
			}
			// The pieces between the marks must be the text around the matches, in order.
			rest := text
			for _, piece := range strings.Split(passed, "[removed]") {
				at := strings.Index(rest, piece)
				if at < 0 {
					t.Fatalf("%q: %q is not of it", text, piece)
				}
				rest = rest[at+len(piece):]
			}
			covered := 0
			for _, m := range engine.FindAllStringIndex(text, -1) {
				covered += m[1] - m[0]
			}
			if left := len(strings.ReplaceAll(passed, "[removed]", "")); left > len(text)-covered {
				t.Fatalf("%q: %q left, although %d bytes match", text, passed, covered)
			}
		})
	}
}

// TestStreams checks that text which cannot begin a match is allowed at once.
func TestStreams(t *testing.T) {
	t.Parallel()
	g := newGuardrail(t, guardrail.Options{Output: guardrail.Output{PII: &allPII, Content: &guardrail.Content{Keywords: []string{"secret"}, Patterns: []string{`BEGIN.*END`}}}})
	for _, tt := range []struct{ in, want []string }{
		{[]string{"Hello, ", "world. ", "No secrets ", "here"}, []string{"Hello, ", "world. ", "No secrets ", "", "here"}},
		{[]string{"Ring 555 ", "now: 020", "2", ". Bye"}, []string{"Ring ", "555 now: ", "", "0202. ", "Bye"}},
		{[]string{"BEGIN ", "and on ", "\nnext "}, []string{"", "", "BEGIN and on \nnext ", ""}},
	} {
		got := evaluateAnswer(g, tt.in...)
		if diff := cmp.Diff(tt.want, got.Pieces); diff != "" {
			t.Errorf("%q: want -, got +\n%s", tt.in, diff)
		}
	}
}

// TestNoExplosion checks that a pattern which takes exponential time in backtracking engines costs at most one step for
// each state at every character, in input and output, and that syntax only such engines have is refused.
func TestNoExplosion(t *testing.T) {
	t.Parallel()
	patterns := []string{`(a+)+b`, `(a|aa)+c`, `(?:a*)*d`, `(x+x+)+y`, `(.*a){20}e`}
	text := strings.Repeat("ax", 20_000)
	g := newGuardrail(t, guardrail.Options{
		Input:  guardrail.Input{Injection: &guardrail.Injection{Patterns: patterns}},
		Output: guardrail.Output{Content: &guardrail.Content{Patterns: patterns}},
	})
	v := evaluateInput(g, []agentsvc.Entry{{Message: &agentsvc.Message{ID: "m", Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart(text)}}}})
	got := evaluateAnswer(g, strings.SplitAfter(text, "x")...)
	if v.Refusal != "" || len(v.Findings) > 0 || got.Block || len(got.Found) > 0 || got.joinPieces() != text { // as after too many steps
		t.Errorf("refused with %q, found %v; blocked %v, found %v", v.Refusal, v.Findings, got.Block, got.Found)
	}
	for _, p := range []string{`(?=a)b`, `(?<!a)b`, `(a)\1`, `(?>a+)b`, `a{1001}`, strings.Repeat("(", 2000) + "a" + strings.Repeat(")*", 2000)} {
		if _, err := guardrail.New("g", guardrail.Options{Output: guardrail.Output{Content: &guardrail.Content{Patterns: []string{p}}}}); err == nil {
			t.Errorf("%.40s is taken", p)
		}
	}
}

// TestBoundedMemory checks that a possible match that grows too long counts as a match.
func TestBoundedMemory(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("and on ", 10_000)
	for name, o := range map[string]guardrail.Output{
		"modify": {Content: &guardrail.Content{Rule: guardrail.Rule{Action: guardrail.Modify}, Patterns: []string{`BEGIN[^!]*!`}}},
		"block":  {Content: &guardrail.Content{Patterns: []string{`BEGIN[^!]*!`}}},
		"warn":   {Content: &guardrail.Content{Rule: guardrail.Rule{Action: guardrail.Warn}, Patterns: []string{`BEGIN[^!]*!`}}},
	} {
		g := newGuardrail(t, guardrail.Options{Output: o})
		complete := evaluateAnswer(g, "So: BEGIN "+long)
		requireSameResult(t, complete, evaluateAnswer(g, strings.SplitAfter("So: BEGIN "+long, " ")...))
		if len(complete.Found) != 1 || (name == "warn") != (complete.joinPieces() == "So: BEGIN "+long) || !strings.HasPrefix(complete.joinPieces(), "So: ") {
			t.Errorf("%s: %v, %.60q", name, complete.Found, complete.joinPieces())
		}
	}
	all := newGuardrail(t, guardrail.Options{Output: guardrail.Output{CollectAll: true, PII: &allPII}})
	a := all.NewAnswerCheck(context.Background())
	for range 3 {
		a.CheckText(strings.Repeat("\n", 1<<19))
	}
	if !a.IsBlocked() || a.EndAnswer().Text != "" {
		t.Error("an answer that is too long to be kept back was not blocked")
	}
}
