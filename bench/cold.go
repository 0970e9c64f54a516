package main

import (
	"context"
	"fmt"
	"slices"

	"stoa/bench/load"
	"stoa/bench/stoa"
)

// hotCalls is how many calls follow the first one of each tenant.
const hotCalls = 10

// cold restarts stoa each round, so that no tenant is loaded, and calls each of some tenants for the first time.
func cold(ctx context.Context, l *lab, _ func(...string) bool, r *report) error {
	database, err := l.database(ctx)
	if err != nil {
		return err
	}
	url := l.cluster.URL(database)
	tenants, err := l.furnish(ctx, url, pick(l.quick, 20, 40))
	if err != nil {
		return err
	}
	var ratios, firsts series
	slowest := 0.0
	for range l.rounds {
		first, hot, err := l.coldRound(ctx, url, tenants)
		if err != nil {
			return err
		}
		firsts = append(firsts, first.median())
		ratios = append(ratios, first.median()/hot.median())
		slowest = max(slowest, slices.Max(first))
	}
	r.rows = append(r.rows,
		atMost("P4", fmt.Sprintf("a cold tenant's first call ÷ a hot call, c=1, %d tenants with 3 agents and 5 tools", len(tenants)-1), 5, ratios),
		atMost("P4", fmt.Sprintf("ms of a cold tenant's first call (slowest of all: %s ms)", number(slowest)), 10, firsts))
	return nil
}

// furnish makes n tenants with three agents and five tools, and before them one to warm the process with.
// It returns their tokens.
func (l *lab) furnish(ctx context.Context, url string, n int) ([]string, error) {
	s, err := l.stoa(ctx, url)
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	tokens := make([]string, 0, n+1)
	for i := range n + 1 {
		token, err := s.Create(ctx, stoa.Furnished(fmt.Sprintf("tenant-%d", i)))
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, token)
	}
	return tokens, nil
}

// coldRound returns the milliseconds of each tenant's first call and the median of its next ones.
func (l *lab) coldRound(ctx context.Context, url string, tokens []string) (first, hot series, err error) {
	s, err := l.stoa(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	defer s.Stop()
	warm, err := s.Blocking(tokens[0], "assistant", text)
	if err != nil {
		return nil, nil, err
	}
	c, err := load.Dial(ctx, warm)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = c.Close() }()
	if _, err := calls(ctx, c, warm, 300); err != nil {
		return nil, nil, err
	}
	for _, token := range tokens[1:] {
		t, err := s.Blocking(token, "assistant", text)
		if err != nil {
			return nil, nil, err
		}
		got, err := calls(ctx, c, t, 1+hotCalls)
		if err != nil {
			return nil, nil, err
		}
		first = append(first, got[0])
		hot = append(hot, got[1:].median())
	}
	return first, hot, nil
}

// calls makes n calls one after the other and returns the milliseconds of each. It ends at the first error.
func calls(ctx context.Context, c *load.Client, t load.Target, n int) (series, error) {
	var got series
	for range n {
		timing, err := c.Call(ctx, t)
		if err != nil {
			return nil, err
		}
		got = append(got, float64(timing.Whole.Microseconds())/1000)
	}
	return got, nil
}
