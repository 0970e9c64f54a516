package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"stoa/bench/load"
	"stoa/bench/stoa"
)

// idle answers /N with N bytes at once and does nothing else.
func idle() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/")) // /health is answered with nothing
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(n))
		_, _ = w.Write(make([]byte, n))
	})
}

// reading is one read, and what took how long in each round.
type reading struct {
	stoa.Read
	bare       load.Target // an answer of that size by idle
	added      series      // ms, c=1, mean
	tail, base series      // ms, c=32, p99, of both
}

// reads compares what callers read with a handler that does nothing.
func reads(ctx context.Context, l *lab, _ func(...string) bool, r *report) error {
	database, err := l.database(ctx)
	if err != nil {
		return err
	}
	s, err := l.stoa(ctx, l.cluster.URL(database))
	if err != nil {
		return err
	}
	defer s.Stop()
	stored := pick(l.quick, 500, 5000)
	all, err := l.library(ctx, s, stored)
	if err != nil {
		return err
	}
	p, base, err := l.helper(ctx, "idle")
	if err != nil {
		return err
	}
	defer p.Stop()
	for i := range all {
		if all[i].bare, err = load.NewTarget(load.Spec{URL: fmt.Sprintf("%s/%d", base, all[i].Size)}); err != nil {
			return err
		}
	}
	// The load takes one core at most: callers have machines of their own.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for round := range l.rounds {
		for i := range all {
			if err := l.read(ctx, &all[i], round); err != nil {
				return err
			}
		}
	}
	for _, x := range all {
		if len(x.Targets) == 1 { // at c=1 there are no others
			r.rows = append(r.rows, atMost("READS",
				fmt.Sprintf("ms that %s takes longer than a handler that does nothing, c=1 (mean; %d bytes, %d tasks a minute old and more)", x.Name, x.Size, stored), 0.5, x.added))
		}
		r.rows = append(r.rows,
			atMost("READS", fmt.Sprintf("ms of %s, c=32 (p99)", x.Name), 5, x.tail),
			plain("READS", "the same of the handler that does nothing", x.base.String()))
	}
	return nil
}

// aged is how old tasks are at least when they are read, as most that callers list are.
const aged = time.Minute

// library makes a tenant with n tasks and returns what is read of it.
func (l *lab) library(ctx context.Context, s *stoa.Server, n int) ([]reading, error) {
	token, err := s.Create(ctx, stoa.Plain("acme"))
	if err != nil {
		return nil, err
	}
	t, err := s.Blocking(token, "assistant", text)
	if err != nil {
		return nil, err
	}
	got, err := load.Run(ctx, t, load.Options{Conns: 32, Calls: n})
	if err == nil && got.Errors > 0 {
		err = got.Err
	}
	if err != nil {
		return nil, err
	}
	if err := l.cluster.Checkpoint(ctx); err != nil {
		return nil, err
	}
	if err := sleep(ctx, aged); err != nil {
		return nil, err
	}
	found, err := s.Reads(ctx, token, "assistant", slices.Max(widths))
	all := make([]reading, len(found))
	for i, x := range found {
		all[i].Read = x
	}
	return all, err
}

// read measures one read and the handler that does nothing, at both numbers of connections.
func (l *lab) read(ctx context.Context, x *reading, round int) error {
	ms := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
	bare, stoa := &[]load.Target{x.bare}, &x.Targets
	for _, conns := range widths {
		got := map[*[]load.Target]load.Result{}
		for _, t := range rotate([]*[]load.Target{bare, stoa}, round) {
			for _, span := range []time.Duration{l.span / 12, l.span / 4} { // the first is the warm-up
				one, err := load.RunEach(ctx, *t, load.Options{Conns: conns, For: span, Lean: true})
				if err == nil && one.Errors > 0 {
					err = one.Err
				}
				if err != nil {
					return fmt.Errorf("%s: %w", x.Name, err)
				}
				got[t] = one
			}
		}
		progress("round %d of %d, c=%d: %s: %.0f calls/s, mean %v, p99 %v", round+1, l.rounds, conns, x.Name, got[stoa].RPS(), got[stoa].Mean(), got[stoa].Whole(99))
		if conns == 1 {
			x.added = append(x.added, ms(got[stoa].Mean()-got[bare].Mean()))
		} else {
			x.tail, x.base = append(x.tail, ms(got[stoa].Whole(99))), append(x.base, ms(got[bare].Whole(99)))
		}
	}
	return nil
}
