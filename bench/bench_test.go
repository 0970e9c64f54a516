package main

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRunPrintsEveryFigure(t *testing.T) {
	if os.Getenv("STOA_TEST_POSTGRES") == "" {
		t.Skip("STOA_TEST_POSTGRES names no PostgreSQL: the test was NOT run")
	}
	product := fakeBinary(t)
	var out bytes.Buffer
	args := []string{"-quick", "-source", "", "-binary", product, "-against", product, "-redis", "", "-rounds", "2", "-span", "300ms"}
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	for _, id := range []string{"START", "P1", "P2", "P3", "P4", "P5", "P7", "P9", "QUEUE", "PICKUP", "P10", "P11", "P12", "READS", "FIRST", "SQLITE", "DOCS", "SCALE"} {
		if !strings.Contains(got, "\n| "+id+" | ") {
			t.Errorf("no row for %s", id)
		}
	}
	if n := strings.Count(got, "of the previous one"); n != 8 {
		t.Errorf("%d rows compare with the previous build, want 8", n)
	}
	for _, bad := range []string{"not measured", "NaN", "Inf", "none |"} {
		if strings.Contains(got, bad) {
			t.Errorf("the report says %q", bad)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

func TestRunSaysWhatItCannotMeasure(t *testing.T) {
	var out bytes.Buffer
	args := []string{"-source", "", "-binary", fakeBinary(t), "-postgres", "", "-redis", "", "-rounds", "1", "-span", "200ms", "-only", "p1,P4,SQLITE,DOCS", "-quick"}
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| P1 | not measured: no PostgreSQL was named", "| P4 | not measured: no PostgreSQL was named", "| SQLITE | calls/s",
		"| DOCS | SQLite: chunks indexed a second", "| DOCS | SQLite, 10000 chunks of a tenant: hybrid search", "| DOCS | not measured: no PostgreSQL was named",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-only", "P99"}, {"-binary", "/nonexistent/stoa"}, {"-against", "/nonexistent/stoa"}, {"-span", "x"}} {
		if err := run(t.Context(), args, &bytes.Buffer{}); err == nil {
			t.Errorf("run(%q) succeeded", args)
		}
	}
}

func TestSeries(t *testing.T) {
	t.Parallel()
	tests := []struct {
		s              series
		median, spread float64
		text           string
	}{
		{nil, 0, 0, "none"},
		{series{3}, 3, 0, "3.00"},
		{series{30, 10, 20}, 20, 1, "20.0 (10.0 to 30.0)"},
		{series{100, 400}, 250, 1.2, "250 (100 to 400)"},
	}
	for _, tt := range tests {
		if tt.s.median() != tt.median || tt.s.spread() != tt.spread || tt.s.String() != tt.text {
			t.Errorf("%v: median %v, spread %v, %q; want %v, %v, %q", []float64(tt.s),
				tt.s.median(), tt.s.spread(), tt.s.String(), tt.median, tt.spread, tt.text)
		}
	}
	if got := (series{4, 9, 5}).over(series{2, 3, 0}); !slices.Equal(got, series{2, 3}) {
		t.Errorf("over = %v", got)
	}
}

func TestRowsMeetTheirGoals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		got  row
		want string
	}{
		{atLeast("P", "", 2, series{2}), yes},
		{atLeast("P", "", 2, series{1.99}), no},
		{atLeast("P", "", 0, nil), no},
		{atMost("P", "", 2, series{2}), yes},
		{atMost("P", "", 2, series{2.01}), no},
		{atMost("P", "", 2, nil), no},
		{missing("P", errors.New("why")), "-"},
	}
	for _, tt := range tests {
		if tt.got.met != tt.want {
			t.Errorf("%+v: met = %s, want %s", tt.got, tt.got.met, tt.want)
		}
	}
}

func TestComparisonWarnsOfANoisyBaselineAndOfErrors(t *testing.T) {
	t.Parallel()
	fight := func(name string, errs int, rps ...float64) *bout {
		b := &bout{name: name, conns: 32}
		for _, x := range rps {
			b.runs = append(b.runs, measure{rps: x, p50: time.Millisecond, errors: errs, err: errors.New("refused")})
		}
		return b
	}
	r := &report{}
	c := comparison{f: &field{why: map[string]error{}}, r: r, bouts: map[string]map[int]*bout{
		"postgres": {32: fight("stoa", 1, 300, 310, 320)}, "bare": {32: fight("bare", 0, 100, 150, 110)},
	}}
	c.row("P1", "postgres", "bare", 32, bout.rps, func(got series) row { return atLeast("P1", "", 2, got) })

	if r.rows[0].met != yes || r.rows[0].figure != "2.91 (2.07 to 3.00)" {
		t.Errorf("row = %+v", r.rows[0])
	}
	notes := strings.Join(r.notes, "\n")
	for _, want := range []string{"(bare) spread by 45%", "stoa answered 3 calls with an error, first: refused"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no %q in %q", want, notes)
		}
	}
}

func TestRotate(t *testing.T) {
	t.Parallel()
	got := rotate([]string{"a", "b", "c"}, 4)
	if want := []string{"b", "c", "a"}; !slices.Equal(got, want) {
		t.Errorf("rotate = %v, want %v", got, want)
	}
	if got := rotate[string](nil, 3); len(got) != 0 {
		t.Errorf("rotate of nothing = %v", got)
	}
}
