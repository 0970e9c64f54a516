package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/config/document"
)

func TestBounds(t *testing.T) {
	t.Parallel()
	deep := func(n int) string {
		return "tools: {t: {parameters: " + strings.Repeat("[", n) + strings.Repeat("]", n) + "}}"
	}
	long := func(string) (string, bool) { return strings.Repeat("x", 60_000), true }
	for _, test := range []struct{ name, src, want string }{
		{"size", "name: " + strings.Repeat("x", document.MaxBytes), "bytes long; at most 1048576 are read"},
		{"depth", deep(70), "is nested deeper than 64 levels"},
		{"absurd depth", deep(20_000), "depth"},
		{"mappings", strings.Repeat("{a: ", 15_000), "depth"},
		{"items", "tools: [" + strings.Repeat("a,", 100_000) + "]", "more than 80000 values"},
		{"names", "tools: {" + repeatFormat("t%d: , ", 5_000) + "}\nagents: {a: {tools: [" + repeatFormat("t%d, ", 20_000) + "]}}", "more problems"},
		{"comments", "agents: {}\n" + strings.Repeat("# a\n", 75_000) + "agent: {}", "not a known key"},
		{"comments beyond the bound", "agents: {}\n" + strings.Repeat("# a\n", 200_000), "more than 80000 values and comments"},
		{"anchors", "x: [" + repeatFormat("&a%d a, ", 38_000) + "]", "not a known key"},
		{"spaces", "x: " + strings.Repeat(" \n", 400_000), "not a known key"},
		{"long key", "? " + strings.Repeat("k", 900_000) + "\n: 1", "not a known key"},
		{"questions", strings.Repeat("? ", 9_000), "has a key that is not text"},
		{"dashes", strings.Repeat("- ", 9_000), "nested deeper"},
		{"long pattern", "llms: {default: {provider: scripted, script: [{when: {text: '" + strings.Repeat("a", 20_000) + "'}, then: []}]}}", "longer than"},
		{"aliases of a long text", "tools: {t: {parameters: {a: &a '" + strings.Repeat("x", 60_000) + "', b: [" + strings.Repeat("*a, ", 100) + "]}}}", "more than 4 MiB of text"},
		{"variables of a long text", "tools: {t: {parameters: {a: '" + strings.Repeat("${LONG}", 100) + "'}}}", "more than 4 MiB of text"},
		{"nul", "name: \x00", "control characters"},
		{"not utf-8", "name: \xff\xfe", "is not valid YAML"},
		{"tab", "name:\n\tx: 1", "2:1: is not valid YAML: found character that cannot start any token: the line is indented with a tab, YAML takes spaces"},
		{"unknown anchor", "name: *nobody", "unknown anchor"},
		{"many problems", "llms: {default: {provider: scripted}}\nagents: {a: {" + repeatFormat("k%d: 1, ", 300) + "}}", "and 200 more problems"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			_, err := Parse([]byte(test.src), Options{Lookup: long})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %.300v, want %s", err, test.want)
			}
			if d := time.Since(start); d > 5*time.Second && !raceDetector {
				t.Errorf("took %v", d)
			}
		})
	}
	if _, err := Parse([]byte("llms: {default: {provider: scripted}}\ntools: {t: {type: function, handler: calculator, parameters: {p: "+
		strings.Repeat("[", 60)+strings.Repeat("]", 60)+"}}}"), Options{}); err != nil {
		t.Errorf("64 levels: %v", err)
	}
}

// TestSyntaxLines checks that a YAML syntax error is reported at the wrong line, or at the beginning of what does not
// end.
func TestSyntaxLines(t *testing.T) {
	t.Parallel()
	for src, line := range map[string]int{
		"llms:\n  m: {provider: scripted,\n    script: [}\nagents: {a: {llm: m}}\n": 3,
		"agents:\n  a: {llm: \"x\n  b: 1\n":                                         2,
		"a:\n  b: 1\n c: 2\nd: 4\n":                                                 3,
		"llms:\n  m:\n    provider: [a, b\nagents: {}\n":                            3,
		"llms: {a: {provider: x}\nagents: {b: c}\nz: 1\n":                           2,
		"a: {b: 1 c: 2}\nd: 3\n":                                                    1,
		"a: b: c\nd: 1\n":                                                           1,
		"a:\n\tb: 1\nc: 2\n":                                                        2,
		"a: 1\nb\nc: 2\n":                                                           2,
		"a: 'it's'\nb: 2\n":                                                         1,
		"a: @x\nb: 1\n":                                                             1,
		"a: 1\n  b: 2\nc: 3\n":                                                      2,
		"- a\nb: c\n":                                                               2,
		"a: b\n- c\n":                                                               2,
		"a: *nobody\n":                                                              0,
	} {
		_, err := Parse([]byte(src), Options{})
		var e *document.Error
		if !errors.As(err, &e) || len(e.Problems) != 1 || e.Problems[0].Line != line {
			t.Errorf("%q: %v, want line %d", src, err, line)
		}
	}
}

func repeatFormat(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func TestEmptyDocuments(t *testing.T) {
	t.Parallel()
	for _, src := range []string{"", "\n", "# nothing\n", "---\n", "null", "{}", "agents:\nllms:\n", "\ufeff{}"} {
		if _, err := Parse([]byte(src), Options{}); err != nil {
			t.Errorf("%q: %v", src, err)
		}
		doc, err := document.Decode([]byte(src))
		if err != nil || doc == nil {
			t.Errorf("%q: %v, %v", src, doc, err)
		}
	}
}

func TestParseIsFast(t *testing.T) {
	t.Parallel()
	src := hundredAgents()
	const limit = 50 * time.Millisecond
	for range 20 { // one undisturbed measurement is enough on a busy machine
		start := time.Now()
		if _, err := Parse(src, Options{}); err != nil {
			t.Fatal(err)
		}
		if time.Since(start) <= limit {
			return
		}
	}
	if !raceDetector {
		t.Errorf("100 agents never took less than %v", limit)
	}
}

func hundredAgents() []byte {
	var b strings.Builder
	b.WriteString("llms: {default: {provider: scripted}}\ntools:\n")
	b.WriteString(repeatFormat("  tool%d: {type: function, handler: calculator}\n", 50))
	b.WriteString("agents:\n")
	for i := range 100 {
		fmt.Fprintf(&b, "  agent%d:\n    description: Agent number %d\n    instruction: |\n      You are helpful.\n      You are number %d.\n    tools: [tool1, tool2, tool3]\n", i, i, i)
		b.WriteString("    skills: [{id: a, name: A, tags: [x, y]}]\n    visibility: internal\n")
	}
	return []byte(b.String())
}

func BenchmarkParse(b *testing.B) {
	src := hundredAgents()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(src, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
