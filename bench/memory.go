package main

import (
	"context"
	"fmt"
	"time"

	"stoa/bench/load"
	"stoa/bench/stoa"
)

// memory drives one tenant and reads the process's memory after few and after many calls, a second after the load
// has paused.
func memory(ctx context.Context, l *lab, _ func(...string) bool, r *report) error {
	few, many := pick(l.quick, 3_000, 10_000), pick(l.quick, 30_000, 100_000)
	var ratios, sizes series
	for round := range pick(l.quick, 1, 3) {
		early, late, err := l.memoryRound(ctx, few, many)
		if err != nil {
			return err
		}
		progress("round %d: %.0f MB, then %.0f MB", round+1, early, late)
		ratios = append(ratios, late/early)
		sizes = append(sizes, late)
	}
	r.rows = append(r.rows,
		atMost("P7", fmt.Sprintf("memory (RSS) after %d calls ÷ after %d, c=32, PostgreSQL", many, few), 1.1, ratios),
		plain("P7", fmt.Sprintf("MB of memory (RSS) after %d calls", many), sizes.String()))
	return nil
}

func (l *lab) memoryRound(ctx context.Context, few, many int) (early, late float64, err error) {
	database, err := l.database(ctx)
	if err != nil {
		return 0, 0, err
	}
	s, t, err := l.serving(ctx, l.cluster.URL(database), stoa.Plain("acme"))
	if err != nil {
		return 0, 0, err
	}
	defer s.Stop()
	var at [2]float64
	for i, n := range []int{few, many - few} {
		got, err := load.Run(ctx, t, load.Options{Conns: widths[0], Calls: n})
		if err != nil {
			return 0, 0, err
		}
		if got.Err != nil {
			return 0, 0, fmt.Errorf("%d of %d calls failed: %w", got.Errors, n, got.Err)
		}
		if at[i], err = settled(ctx, s.PID(), time.Second); err != nil {
			return 0, 0, err
		}
	}
	return at[0], at[1], nil
}
