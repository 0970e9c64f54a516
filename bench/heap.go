package main

import (
	"context"
	"errors"
	"fmt"

	"stoa/bench/load"
	"stoa/bench/proc"
	"stoa/bench/stoa"
)

// errNoTrace is returned when the server's log shows no garbage collections although it was asked to.
var errNoTrace = errors.New("the server wrote no trace of its garbage collections")

// heap loads few tenants, then many, and divides the growth of the live heap by the tenants between. The live heap
// is what the server's own collector found reachable (GODEBUG=gctrace=1), so garbage and free pages do not count.
func heap(ctx context.Context, l *lab, _ func(...string) bool, r *report) error {
	database, err := l.database(ctx)
	if err != nil {
		return err
	}
	url := l.cluster.URL(database)
	few, many := pick(l.quick, 100, 200), pick(l.quick, 400, 1000)
	tokens, err := l.furnish(ctx, url, many)
	if err != nil {
		return err
	}
	var per series
	for range pick(l.quick, 1, 3) {
		got, err := l.heapRound(ctx, url, tokens, few)
		if err != nil {
			return err
		}
		per = append(per, got)
	}
	r.rows = append(r.rows, atMost("P5",
		fmt.Sprintf("KB of live heap per loaded idle tenant with 3 agents and 5 tools (from %d to %d tenants)", few, many), 64, per))
	return nil
}

// heapRound returns the KB that each tenant beyond the first few adds.
func (l *lab) heapRound(ctx context.Context, url string, tokens []string, few int) (float64, error) {
	s, err := l.stoa(ctx, url, proc.TraceGC, "GOGC=50")
	if err != nil {
		return 0, err
	}
	defer s.Stop()
	warm, err := s.Blocking(tokens[0], "assistant", text)
	if err != nil {
		return 0, err
	}
	c, err := load.Dial(ctx, warm)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	if _, err := calls(ctx, c, warm, 300); err != nil {
		return 0, err
	}
	if err := callOnce(ctx, s, c, tokens[1:1+few]); err != nil {
		return 0, err
	}
	before, err := liveHeap(ctx, s, warm)
	if err != nil {
		return 0, err
	}
	if err := callOnce(ctx, s, c, tokens[1+few:]); err != nil {
		return 0, err
	}
	after, err := liveHeap(ctx, s, warm)
	if err != nil {
		return 0, err
	}
	progress("live heap: %.0f MiB, then %.0f MiB", before/(1<<20), after/(1<<20))
	return (after - before) / float64(len(tokens)-1-few) / 1000, nil
}

func callOnce(ctx context.Context, s *stoa.Server, c *load.Client, tokens []string) error {
	for _, token := range tokens {
		t, err := s.Blocking(token, "assistant", text)
		if err != nil {
			return err
		}
		if _, err := c.Call(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// liveHeap keeps one tenant busy until the collector has run four times more, so that pools and what the other
// tenants' calls left behind are gone, and returns the median of the last three live heaps in bytes.
func liveHeap(ctx context.Context, s *stoa.Server, warm load.Target) (float64, error) {
	const collections, used = 4, 3
	start := -1
	for range 200 {
		live, err := proc.LiveHeaps(s.Log())
		if err != nil {
			return 0, err
		}
		if start < 0 {
			start = len(live)
		}
		if len(live) >= start+collections {
			return collect(live[len(live)-used:], func(n int64) float64 { return float64(n) }).median(), nil
		}
		if _, err := load.Run(ctx, warm, load.Options{Conns: 4, Calls: 500}); err != nil {
			return 0, err
		}
	}
	return 0, errNoTrace
}
