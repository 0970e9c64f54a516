package main

import (
	"context"
	"fmt"
	"slices"
)

// widths are the numbers of connections that are driven at once.
var widths = []int{32, 1}

// field is who takes part, by role. A role whose contestant could not start is missing and has its reason in why.
type field struct {
	order []string
	by    map[string]contestant
	why   map[string]error
	// against reports that the contestants of a previous build take part.
	against bool
}

func (f *field) add(role string, c contestant, err error) {
	if err != nil {
		f.why[role] = err
		return
	}
	f.order = append(f.order, role)
	f.by[role] = c
}

func (f *field) stop() {
	for _, c := range f.by {
		c.stop()
	}
}

// contestants starts those that the wanted figures compare.
func (l *lab) contestants(ctx context.Context, wanted func(...string) bool) *field {
	f := &field{by: map[string]contestant{}, why: map[string]error{}}
	if wanted("P1", "SQLITE") {
		f.add("bare", l.bare(), nil)
	}
	if wanted("P1", "P2", "P3", "P10") {
		c, err := l.onPostgres(ctx)
		f.add("postgres", c, err)
	}
	if wanted("P1") {
		c, err := l.onGoverned(ctx)
		f.add("governed", c, err)
	}
	if wanted("P1") && l.against != "" {
		f.against = true
		c, err := l.previous(ctx, l.onPostgres)
		f.add("postgres before", c, err)
		c, err = l.previous(ctx, l.onGoverned)
		f.add("governed before", c, err)
	}
	if wanted("P2", "P3") {
		c, err := l.pgbench(ctx)
		f.add("pgbench", c, err)
	}
	if wanted("P10") {
		c, err := l.onUnprotected(ctx)
		f.add("unprotected", c, err)
	}
	if wanted("SQLITE") {
		c, err := l.onSQLite(ctx)
		f.add("sqlite", c, err)
	}
	return f
}

// throughput measures every contestant at every width in turn, round after round, each round starting with another
// one, and compares them round by round.
func throughput(ctx context.Context, l *lab, wanted func(...string) bool, r *report) error {
	f := l.contestants(ctx, wanted)
	defer f.stop()
	bouts := map[string]map[int]*bout{}
	for _, conns := range widths {
		for round := range l.rounds {
			for _, role := range rotate(f.order, round) {
				if err := l.fight(ctx, f, bouts, role, conns, round); err != nil {
					return err
				}
			}
		}
	}
	for _, role := range f.order {
		for _, conns := range widths {
			if b := bouts[role][conns]; b != nil && f.why[role] == nil {
				r.bouts = append(r.bouts, *b)
			}
		}
	}
	c := comparison{f: f, bouts: bouts, r: r}
	c.rows(wanted)
	return nil
}

func rotate[T any](order []T, by int) []T {
	if len(order) == 0 {
		return nil
	}
	by %= len(order)
	return slices.Concat(order[by:], order[:by])
}

// fight lets one contestant run once. A contestant that fails is out, and the others go on.
func (l *lab) fight(ctx context.Context, f *field, bouts map[string]map[int]*bout, role string, conns, round int) error {
	if f.why[role] != nil {
		return nil
	}
	if l.cluster != nil {
		if err := l.cluster.Checkpoint(ctx); err != nil {
			return err
		}
	}
	c := f.by[role]
	m, err := c.run(ctx, conns)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		f.why[role] = fmt.Errorf("%s: %w", c.name, err)
		progress("%v", f.why[role])
		return nil
	}
	progress("round %d of %d, c=%d: %s: %.0f calls/s, p50 %v", round+1, l.rounds, conns, c.name, m.rps, m.p50)
	if bouts[role] == nil {
		bouts[role] = map[int]*bout{}
	}
	b := bouts[role][conns]
	if b == nil {
		b = &bout{name: c.name, conns: conns}
		bouts[role][conns] = b
	}
	b.runs = append(b.runs, m)
	return nil
}
