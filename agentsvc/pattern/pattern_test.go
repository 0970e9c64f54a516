package pattern_test

import (
	"context"
	"errors"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"stoa/agentsvc/pattern"
	"stoa/agentsvc/processor"
)

// expressions cover all features of RE2: anchors, boundaries, flags, greedy and lazy repetitions, classes, groups.
var expressions = []string{
	`a`, `ab+c`, `(?i)FAL\w{0,3}n`, `x[^y]*y`, `(?:aa|aab)c?`, `^top`, `end$`, `(?m)^l\d`, `é.`, `(?s)q.q`, `\bon\b`, `a*`, `(?:a|ab)(?:c|bcd)`,
	`(?P<x>a+?)(?P<y>b*)`, `(?P<w>\w+) (?P<v>\w+)?`, `(?U)a+`, `\Aa|b\z`, `(a|b|c){2,5}Z`, `[^\n]+$`, `(?:)`, `\B`, `(?P<a>a)|(?P<b>b)|(?P<c>)`,
	`(x+x+)+y`, `(?i)é+`, `.{3}`, `(?P<all>(?P<one>a)+b?)*c`,
}

// TestSameAsRegexp checks that matches, groups and replacements are those of package regexp.
func TestSameAsRegexp(t *testing.T) {
	t.Parallel()
	alphabet := []string{"a", "b", "c", "x", "y", "fal", "con", "n", " ", "top", "end", "\n", "l1", "é", "É", "q", "\xff", "Z"}
	for _, expr := range expressions {
		p, err := pattern.Compile(expr)
		if err != nil {
			t.Fatal(err)
		}
		re := regexp.MustCompile(expr)
		rapid.Check(t, func(t *rapid.T) {
			text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(alphabet), 0, 20).Draw(t, "text"), "")
			w := pattern.NewStepBudget(context.Background(), "", len(text))
			if got, err := p.Match(w, text); err != nil || got != re.MatchString(text) {
				t.Fatalf("%s matches %q: %v, %v", expr, text, got, err)
			}
			var want []string
			if found := re.FindStringSubmatch(text); found != nil {
				for i, name := range re.SubexpNames() {
					if name != "" {
						want = append(want, found[i])
					}
				}
			}
			got, ok, err := p.FindGroups(w, text)
			if diff := cmp.Diff(strings.Join(want, "|"), strings.Join(got, "|")); err != nil || ok != re.MatchString(text) || diff != "" {
				t.Fatalf("%s in %q: %v, %v (-want +got)\n%s", expr, text, ok, err, diff)
			}
			if got, err := p.ReplaceAll(w, text, "[$1]"); err != nil || got != re.ReplaceAllLiteralString(text, "[$1]") {
				t.Fatalf("%s in %q replaced: %q, %v, want %q", expr, text, got, err, re.ReplaceAllLiteralString(text, "[$1]"))
			}
		})
	}
}

// TestBounds checks that an expression that is too large is refused before its repetitions are expanded.
func TestBounds(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		`(`:                              "is no RE2 expression",
		`(?=a)b`:                         "is no RE2 expression",
		strings.Repeat("a", 10_001):      "is longer than 10000 bytes",
		strings.Repeat("a", 2001):        "compiles to 2001 instructions, at most 2000 are run; shorten repetitions such as {100,200}",
		`(a|b|c|d|e){1000}[xy]{1000}z`:   "instructions",
		`((a|bb){30}c){30}d{200}`:        "instructions",
		strings.Repeat(`\pL{1000}`, 900): "instructions",
	} {
		if _, err := pattern.Compile(expr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %s", expr, err, want)
		}
		if _, err := pattern.CountInstructions(expr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the size of %.40s: %v, want %s", expr, err, want)
		}
	}
	for _, expr := range append(expressions, strings.Repeat("(a)", 500)) {
		if _, err := pattern.Compile(expr); err != nil {
			t.Errorf("%.40s: %v", expr, err)
		}
	}
}

// heavyExpression has matches in progress in all its states at every character of a text of letters.
const heavyExpression = `(a|b|c|d|e){300,600}Z`

// TestBudget checks that a match that takes more steps than the text's length permits is stopped, and that a usual one
// is not.
func TestBudget(t *testing.T) {
	t.Parallel()
	p, err := pattern.Compile(heavyExpression)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("abcde", 2<<20/5)
	const most = pattern.BaseSteps + pattern.StepsPerByte*(2<<20) + pattern.SliceSteps + 2*pattern.MaxInstructions
	for name, match := range map[string]func(w *pattern.StepBudget) error{
		"match":   func(w *pattern.StepBudget) error { _, err := p.Match(w, text); return err },
		"groups":  func(w *pattern.StepBudget) error { _, _, err := p.FindGroups(w, text); return err },
		"replace": func(w *pattern.StepBudget) error { _, err := p.ReplaceAll(w, text, ""); return err },
	} {
		w := pattern.NewStepBudget(t.Context(), "", len(text))
		if err := match(w); !errors.Is(err, pattern.ErrTooManySteps) || w.SpentSteps() > most {
			t.Errorf("%s: %v after %d steps, want an end before %d", name, err, w.SpentSteps(), int64(most))
		}
		if err := match(w); !errors.Is(err, pattern.ErrTooManySteps) {
			t.Errorf("%s: once more it is %v", name, err)
		}
	}
	usual, err := pattern.Compile(`(?i)\b(?:ignore|forget)\s+all\s+\w+`)
	if err != nil {
		t.Fatal(err)
	}
	w := pattern.NewStepBudget(t.Context(), "", len(text))
	if found, err := usual.Match(w, strings.Repeat("it is. ", 2<<20/7)); found || err != nil {
		t.Errorf("a usual pattern: %v, %v", found, err)
	}
	t.Logf("a usual pattern takes %.2f steps for a byte", float64(w.SpentSteps())/(2<<20))
	total := pattern.NewStepBudget(t.Context(), "", 0)
	for range 40 {
		_, err = p.Match(total.NewPart(1<<20), text[:1<<20])
	}
	if !errors.Is(err, pattern.ErrTooManySteps) || total.SpentSteps() > pattern.BaseSteps+2*pattern.SliceSteps {
		t.Errorf("parts together: %v after %d steps", err, total.SpentSteps())
	}
}

// countingContext is a context that records how much work was done between two checks of it, and ends after some of
// them.
type countingContext struct {
	context.Context
	budget   *pattern.StepBudget
	endAfter int // checks after which it has ended, 0 = never
	checks   int
	last     int64
	longest  int64
}

func (c *countingContext) Err() error {
	c.checks++
	c.longest = max(c.longest, c.budget.SpentSteps()-c.last)
	c.last = c.budget.SpentSteps()
	if c.endAfter > 0 && c.checks >= c.endAfter {
		return context.Canceled
	}
	return nil
}

// TestContextCheckInterval checks that the work between two checks of the context is at most a slice and the steps of
// one character, and that the work ends at the first check after the context's end.
func TestContextCheckInterval(t *testing.T) {
	t.Parallel()
	p, err := pattern.Compile(heavyExpression)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("abcde", 100_000)
	for _, ends := range []int{0, 1, 7} {
		ctx := &countingContext{Context: t.Context(), endAfter: ends}
		w := pattern.NewStepBudget(ctx, "", len(text))
		ctx.budget = w
		_, err := p.Match(w, text)
		if want := []error{pattern.ErrTooManySteps, context.Canceled}[min(ends, 1)]; !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		const most = pattern.SliceSteps + 4*pattern.MaxInstructions
		if ctx.longest > most || ends > 0 && ctx.checks != ends {
			t.Errorf("%d looks, the longest work without one took %d steps, want %d at most", ctx.checks, ctx.longest, most)
		}
		t.Logf("%d looks at the context, at most %d steps between two", ctx.checks, ctx.longest)
	}
}

// TestLongMatchWaitsForProcessor checks that work beyond a slice waits while all permits of the process are taken, and
// shorter work does not. Parts that are shorter than a slice count together. It is not parallel, because the permits
// are shared by all tests.
func TestLongMatchWaitsForProcessor(t *testing.T) {
	p, err := pattern.Compile(heavyExpression)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("abcde", 300)
	for name, match := range map[string]func(w *pattern.StepBudget) error{
		"one text": func(w *pattern.StepBudget) error { _, err := p.Match(w, long); return err },
		"many parts": func(w *pattern.StepBudget) error {
			for range 1000 {
				if _, err := p.Match(w.NewPart(30), long[:30]); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			for range max(1, runtime.GOMAXPROCS(0)/2) {
				if err := processor.Shared.Acquire(t.Context(), ""); err != nil {
					t.Fatal(err)
				}
			}
			done := make(chan error, 1)
			go func() { done <- match(pattern.NewStepBudget(t.Context(), "", len(long))) }()
			synctest.Wait()
			if len(done) != 0 {
				t.Errorf("%s: it is matched without a turn", name)
			}
			if _, err := p.Match(pattern.NewStepBudget(t.Context(), "", 30), long[:30]); err != nil {
				t.Error(err)
			}
			for range max(1, runtime.GOMAXPROCS(0)/2) {
				processor.Shared.Release()
			}
			if err := <-done; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

func BenchmarkMatch(b *testing.B) {
	for name, c := range map[string]struct{ expr, text string }{
		"short":    {`^slow (?P<n>\S+)`, "slow 17"},
		"no match": {`^slow (?P<n>\S+)`, "hello"},
		"phrase":   {`(?i)\b(?:ignore|forget)\s+all\s+\w+`, strings.Repeat("it is the fourth of 12 letters that I wrote. ", 100)},
		"heavy":    {heavyExpression, strings.Repeat("abcde", 2000)},
	} {
		p, err := pattern.Compile(c.expr)
		if err != nil {
			b.Fatal(err)
		}
		re := regexp.MustCompile(c.expr)
		var steps int64
		b.Run(name+"/pattern", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := pattern.NewStepBudget(context.Background(), "", len(c.text))
				_, _, _ = p.FindGroups(w, c.text)
				steps = w.SpentSteps()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(max(steps, 1)), "ns/step")
		})
		b.Run(name+"/regexp", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				re.FindStringSubmatch(c.text)
			}
		})
	}
}
