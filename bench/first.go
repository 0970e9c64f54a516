package main

import (
	"context"
	"time"

	"stoa/bench/stoa"
)

// carriers are the ways in which events reach a client; the first is what the others are compared with.
var carriers = []struct {
	name string
	open func(s *stoa.Server, ctx context.Context, token, agent, text string) (*stoa.Stream, error)
}{
	{"server-sent events", (*stoa.Server).Events},
	{"a WebSocket", (*stoa.Server).Socket},
	{"gRPC", (*stoa.Server).Calls},
}

// firstEvents compares how soon a stream sends its first event over each transport.
func firstEvents(ctx context.Context, l *lab, _ func(...string) bool, r *report) error {
	database, err := l.database(ctx)
	if err != nil {
		return err
	}
	s, err := l.stoa(ctx, l.cluster.URL(database))
	if err != nil {
		return err
	}
	defer s.Stop()
	token, err := s.Create(ctx, stoa.Plain("acme"))
	if err != nil {
		return err
	}
	open := make([]*stoa.Stream, len(carriers))
	for i, c := range carriers {
		if open[i], err = c.open(s, ctx, token, "assistant", text); err != nil {
			return err
		}
		defer open[i].Close()
	}
	took := make([]series, len(carriers))
	for round := range l.rounds + 1 {
		for _, i := range rotate([]int{0, 1, 2}, round) {
			p50, err := firsts(ctx, open[i], pick(l.quick, 100, 400))
			if err != nil {
				return err
			}
			if round > 0 { // else it is the warm-up
				progress("round %d of %d: %s: the first event after %.2f ms", round, l.rounds, carriers[i].name, p50)
				took[i] = append(took[i], p50)
			}
		}
	}
	r.rows = append(r.rows, plain("FIRST", "ms to the first event of a stream of "+carriers[0].name+", c=1 (p50)", took[0].String()))
	for i := 1; i < len(carriers); i++ {
		r.rows = append(r.rows, atMost("FIRST", "time to the first event over "+carriers[i].name+" ÷ of "+carriers[0].name+", c=1 (p50)", 2, took[i].over(took[0])))
	}
	return nil
}

// firsts is the median of n times to the first event, in ms.
func firsts(ctx context.Context, c *stoa.Stream, n int) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var all series
	for range n {
		d, err := c.First(ctx)
		if err != nil {
			return 0, err
		}
		all = append(all, float64(d.Microseconds())/1000)
	}
	return all.median(), nil
}
