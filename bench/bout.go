package main

import (
	"context"
	"fmt"
	"time"

	"stoa/bench/load"
	"stoa/bench/proc"
)

// bout is what one contestant did at one width, round by round.
type bout struct {
	name  string
	conns int
	runs  []measure
}

// measure is one run of one contestant.
type measure struct {
	rps      float64
	p50, p99 time.Duration
	errors   int
	err      error // the first error
	cost     cost
}

func (b bout) rps() series { return collect(b.runs, func(m measure) float64 { return m.rps }) }

func (b bout) p50() series {
	return collect(b.runs, func(m measure) float64 { return float64(m.p50.Microseconds()) / 1000 })
}

func (b bout) p99() series {
	return collect(b.runs, func(m measure) float64 { return float64(m.p99.Microseconds()) / 1000 })
}

// work is the processor time that a call costs server and databases together, in microseconds.
func (b bout) work() series {
	return collect(b.runs, func(m measure) float64 {
		return float64((max(m.cost.server, 0) + max(m.cost.postgres, 0) + max(m.cost.redis, 0)).Microseconds())
	})
}

func (b bout) errors() (n int, first error) {
	for _, m := range b.runs {
		n += m.errors
		if first == nil {
			first = m.err
		}
	}
	return n, first
}

func (b bout) line() string {
	us := func(part func(cost) time.Duration) string {
		return micros(collect(b.runs, func(m measure) float64 { return float64(part(m.cost).Microseconds()) }))
	}
	n, _ := b.errors()
	return fmt.Sprintf("| %s | %d | %.0f | %.0f%% | %.2f | %.2f | %s | %s | %s | %s | %d |\n",
		b.name, b.conns, b.rps().median(), 100*b.rps().spread(), b.p50().median(), b.p99().median(),
		us(func(c cost) time.Duration { return c.server }), us(func(c cost) time.Duration { return c.postgres }),
		us(func(c cost) time.Duration { return c.redis }), us(func(c cost) time.Duration { return c.load }), n)
}

// drive warms a server up and then measures it.
func (l *lab) drive(ctx context.Context, server *proc.Process, t load.Target, conns int) (measure, error) {
	if _, err := load.Run(ctx, t, load.Options{Conns: conns, For: min(l.span/2, 2*time.Second)}); err != nil {
		return measure{}, err
	}
	m := meter{lab: l, server: server}
	before := m.read()
	got, err := load.Run(ctx, t, load.Options{Conns: conns, For: l.span})
	if err != nil {
		return measure{}, err
	}
	if got.Calls == 0 {
		return measure{}, fmt.Errorf("no call succeeded: %w", got.Err)
	}
	return measure{
		rps: got.RPS(), p50: got.Whole(50), p99: got.Whole(99),
		errors: got.Errors, err: got.Err, cost: m.since(before, got.Calls),
	}, nil
}
