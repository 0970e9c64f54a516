package main

import (
	"errors"
	"fmt"

	"stoa/bench/pg"
)

// noisy is the spread of a baseline above which a ratio to it is to be read with care.
const noisy = 0.30

// comparison turns the bouts into rows.
type comparison struct {
	f     *field
	bouts map[string]map[int]*bout
	r     *report
}

func (c comparison) rows(wanted func(...string) bool) {
	rps := func(b bout) series { return b.rps() }
	if wanted("P1") {
		what := "calls/s of the full path (token, roles, tenant, PostgreSQL; metering) ÷ a bare a2a-go server in memory, c="
		c.row("P1", "postgres", "bare", 32, rps, func(got series) row { return atLeast("P1", what+"32", 2, got) })
		c.row("P1", "postgres", "bare", 1, rps, func(got series) row { return plain("P1", what+"1", got.String()) })
	}
	if wanted("P1") {
		what := "the same with two rate limits in Redis, metrics, and one call in a hundred traced, c="
		c.row("P1", "governed", "bare", 32, rps, func(got series) row { return atLeast("P1", what+"32", 1.7, got) })
		c.row("P1", "governed", "bare", 1, rps, func(got series) row { return plain("P1", what+"1", got.String()) })
	}
	if wanted("P1") && c.f.against {
		c.againstPrevious("postgres", "")
		c.againstPrevious("governed", " with limits, metrics and traces")
	}
	if wanted("P2") {
		what := "calls/s ÷ pgbench doing the same two transactions with the same clients, c="
		c.row("P2", "postgres", "pgbench", 32, rps, func(got series) row { return atLeast("P2", what+"32", 1, got) })
		c.row("P2", "postgres", "pgbench", 1, rps, func(got series) row { return atLeast("P2", what+"1", 0.6, got) })
	}
	if wanted("P3") {
		what := fmt.Sprintf("p50 of a call ÷ p50 of its %d commits in pgbench, c=1", pg.Commits)
		c.row("P3", "postgres", "pgbench", 1, bout.p50, func(got series) row { return atMost("P3", what, 1.5, got) })
	}
	if wanted("P10") {
		what := "calls/s with row-level security ÷ without, c="
		c.row("P10", "postgres", "unprotected", 32, rps, func(got series) row { return atLeast("P10", what+"32", 0.9, got) })
		c.row("P10", "postgres", "unprotected", 1, rps, func(got series) row { return plain("P10", what+"1", got.String()) })
	}
	if wanted("SQLITE") {
		for _, conns := range widths {
			c.row("SQLITE", "sqlite", "bare", conns, rps, func(got series) row {
				return plain("SQLITE", fmt.Sprintf("calls/s of the full path on SQLite ÷ a bare a2a-go server in memory, c=%d", conns), got.String())
			})
		}
	}
}

// againstPrevious adds the rows that compare a contestant with the same one of the previous build.
func (c comparison) againstPrevious(role, what string) {
	before := role + " before"
	for _, conns := range widths {
		c.row("P1", role, before, conns, func(b bout) series { return b.rps() }, func(got series) row {
			return atLeast("P1", fmt.Sprintf("calls/s of this build ÷ of the previous one%s, c=%d", what, conns), 0.95, got)
		})
		c.row("P1", role, before, conns, bout.work, func(got series) row {
			return plain("P1", fmt.Sprintf("processor time per call of this build ÷ of the previous one%s, c=%d", what, conns), got.String())
		})
	}
}

func (c comparison) row(id, who, base string, conns int, figure func(bout) series, format func(series) row) {
	if err := errors.Join(c.f.why[who], c.f.why[base]); err != nil {
		c.r.rows = append(c.r.rows, missing(id, err))
		return
	}
	a, b := c.bouts[who][conns], c.bouts[base][conns]
	c.r.rows = append(c.r.rows, format(figure(*a).over(figure(*b))))
	if spread := figure(*b).spread(); spread > noisy {
		c.r.note("%s, c=%d: the baseline (%s) spread by %.0f%% over the rounds; read the ratio with care.", id, conns, b.name, 100*spread)
	}
	for _, x := range []*bout{a, b} {
		if n, first := x.errors(); n > 0 {
			c.r.note("%s, c=%d: %s answered %d calls with an error, first: %s", id, conns, x.name, n, oneLine(first.Error()))
		}
	}
}
