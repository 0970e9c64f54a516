package main

import (
	"fmt"
	"io"
	"strings"
)

// row is one line of the table of goals.
type row struct {
	id, what, goal, figure, met string
}

const (
	yes = "yes"
	no  = "**no**"
)

// atLeast is a row whose figure must reach the goal.
func atLeast(id, what string, goal float64, got series) row {
	return row{id: id, what: what, goal: "≥ " + number(goal), figure: got.String(), met: pick(len(got) > 0 && got.median() >= goal, yes, no)}
}

// atMost is a row whose figure must not pass the goal.
func atMost(id, what string, goal float64, got series) row {
	return row{id: id, what: what, goal: "≤ " + number(goal), figure: got.String(), met: pick(len(got) > 0 && got.median() <= goal, yes, no)}
}

// within is a row whose figure must lie between two goals.
func within(id, what string, least, most float64, got series) row {
	met := len(got) > 0 && got.median() >= least && got.median() <= most
	return row{id: id, what: what, goal: number(least) + " to " + number(most), figure: got.String(), met: pick(met, yes, no)}
}

// plain is a row without a goal.
func plain(id, what, figure string) row {
	return row{id: id, what: what, goal: "-", figure: figure, met: "-"}
}

// missing is a row that could not be measured.
func missing(id string, why error) row {
	return row{id: id, what: "not measured: " + oneLine(why.Error()), goal: "-", figure: "-", met: "-"}
}

// report is what a run prints.
type report struct {
	facts []string // machine, versions, settings
	rows  []row
	bouts []bout // throughput in detail
	notes []string
}

func (r *report) write(w io.Writer) error {
	var b strings.Builder
	for _, fact := range r.facts {
		fmt.Fprintf(&b, "- %s\n", fact)
	}
	b.WriteString("\n| # | Figure | Goal | Measured | Met |\n|---|---|---|---|---|\n")
	for _, x := range r.rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", x.id, cell(x.what), x.goal, cell(x.figure), x.met)
	}
	if len(r.bouts) > 0 {
		b.WriteString("\n| Contestant | c | calls/s | spread | p50 ms | p99 ms | CPU µs per call: server | PostgreSQL | Redis | load | errors |\n")
		b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|\n")
		for _, x := range r.bouts {
			b.WriteString(x.line())
		}
	}
	if len(r.notes) > 0 {
		b.WriteString("\n")
	}
	for _, note := range r.notes {
		fmt.Fprintf(&b, "- %s\n", note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *report) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 300 {
		return string(r[:300]) + "..."
	}
	return s
}
