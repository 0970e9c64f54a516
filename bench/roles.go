package main

import (
	"context"
	"fmt"
	"sync"

	"stoa/bench/load"
	"stoa/bench/stoa"
)

// fewTenants are those that the role check is compared with.
const fewTenants = 10

// roles measures requests that the role check decides and that reach no store, at a server of few tenants and at one of
// many, which has as many of them loaded as it keeps.
func roles(ctx context.Context, l *lab, _ func(...string) bool, r *report) error {
	many := pick(l.quick, 1000, 10_000)
	few, err := l.crowd(ctx, fewTenants)
	if err != nil {
		return err
	}
	defer few.Stop()
	crowd, err := l.crowd(ctx, many)
	if err != nil {
		return err
	}
	defer crowd.Stop()
	if err := l.settle(ctx, crowd.Server.Process); err != nil {
		return err
	}
	var ofFew, ofMany series
	type side struct {
		*crowded
		to *series
	}
	for round := range l.rounds {
		for _, side := range rotate([]side{{few, &ofFew}, {crowd, &ofMany}}, round) {
			m, err := l.drive(ctx, side.Server.Process, side.asks, 1)
			if err != nil {
				return err
			}
			*side.to = append(*side.to, float64(m.p50.Nanoseconds())/1000)
		}
	}
	r.rows = append(r.rows,
		atMost("P12", fmt.Sprintf("a request that the role check decides, c=1, p50, with %d tenants ÷ with %d", many, fewTenants), 1.1, ofMany.over(ofFew)),
		plain("P12", fmt.Sprintf("µs of that request with %d tenants, c=1, p50", fewTenants), ofFew.String()))
	return nil
}

// crowded is a server with tenants, and what is asked of the last of them.
type crowded struct {
	*stoa.Server
	asks load.Target
}

// crowd starts a server and has n tenants made, called and called again.
func (l *lab) crowd(ctx context.Context, n int) (*crowded, error) {
	database, err := l.database(ctx)
	if err != nil {
		return nil, err
	}
	s, err := l.stoa(ctx, l.cluster.URL(database))
	if err != nil {
		return nil, err
	}
	c := &crowded{Server: s}
	if c.asks, err = l.fill(ctx, s, n); err != nil {
		s.Stop()
		return nil, err
	}
	return c, nil
}

// makers is how many tenants are made at a time, and documents uploaded.
const makers = 8

// fill makes n tenants, loads each, and returns a request of the last.
func (l *lab) fill(ctx context.Context, s *stoa.Server, n int) (last load.Target, err error) {
	progress("%d tenants are made", n)
	err = forEach(ctx, n, func(ctx context.Context, i int) error {
		t, err := oneMore(ctx, s, i)
		if i == n-1 {
			last = t
		}
		return err
	})
	return last, err
}

// forEach runs f for each number below n, makers at a time, until one fails.
func forEach(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	numbers := make(chan int)
	var all sync.WaitGroup
	for range makers {
		all.Go(func() {
			for i := range numbers {
				if err := f(ctx, i); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case numbers <- i:
		case <-ctx.Done():
		}
	}
	close(numbers)
	all.Wait()
	return context.Cause(ctx)
}

// oneMore makes a tenant and loads it.
func oneMore(ctx context.Context, s *stoa.Server, i int) (load.Target, error) {
	token, err := s.Create(ctx, stoa.Plain(fmt.Sprintf("tenant-%d", i)))
	if err != nil {
		return load.Target{}, err
	}
	t, err := s.Decided(token, "assistant")
	if err != nil {
		return t, err
	}
	c, err := load.Dial(ctx, t)
	if err != nil {
		return t, err
	}
	defer func() { _ = c.Close() }()
	_, err = c.Call(ctx, t)
	return t, err
}
