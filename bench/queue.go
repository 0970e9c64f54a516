package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"stoa/bench/load"
	"stoa/bench/stoa"
)

// queueWorkers is how many runs the queue's rate is measured with at a time: as many as a process has whose runs wait
// for their models most of the time. The scripted model answers at once, so that the more there are the more share a
// commit.
const queueWorkers = 128

// queue fills the queue of an app by a process that runs nothing, and times another that works it off.
func queue(ctx context.Context, l *lab, wanted func(...string) bool, r *report) error {
	if wanted("QUEUE") {
		var rates series
		for range l.rounds {
			rate, err := l.workOff(ctx, pick(l.quick, 3_000, 12_000))
			if err != nil {
				return err
			}
			rates = append(rates, rate)
		}
		r.rows = append(r.rows, atLeast("QUEUE", fmt.Sprintf("queued runs claimed, run on the scripted model and completed a second, one process with %d workers", queueWorkers), 2000, rates))
	}
	if wanted("PICKUP") {
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
		ms, err := l.pickups(ctx, s, token)
		if err != nil {
			return err
		}
		r.rows = append(r.rows, atMost("PICKUP", "ms from the acceptance of a run without a waiting caller to its beginning, with idle workers, p99", 50, series{ms}))
	}
	return nil
}

// workOff returns how many of n queued runs a process completes a second.
func (l *lab) workOff(ctx context.Context, n int) (float64, error) {
	database, err := l.database(ctx)
	if err != nil {
		return 0, err
	}
	url := l.cluster.URL(database)
	web, err := l.stoa(ctx, url, "STOA_ROLE=web")
	if err != nil {
		return 0, err
	}
	app := stoa.Plain("acme")
	app.Limits = map[string]any{"queue_depth": 10 * n}
	token, err := web.Create(ctx, app)
	if err == nil {
		err = fill(ctx, web, token, n)
	}
	web.Stop()
	if err != nil {
		return 0, err
	}
	worker, err := l.stoa(ctx, url, fmt.Sprintf("STOA_QUEUE_WORKERS=%d", queueWorkers))
	if err != nil {
		return 0, err
	}
	defer worker.Stop()
	first, err := worker.Waiting(ctx)
	began := time.Now()
	m := meter{lab: l, server: worker.Process}
	before := m.read()
	for left := first; err == nil && left > 0; left, err = worker.Waiting(ctx) {
		time.Sleep(100 * time.Millisecond) // each look costs the database as much as many runs
	}
	rate := float64(first) / time.Since(began).Seconds()
	c := m.since(before, max(1, first))
	progress("%d queued runs: %.0f/s, processor time each: server %v, PostgreSQL %v", first, rate, c.server, c.postgres)
	return rate, err
}

func fill(ctx context.Context, s *stoa.Server, token string, n int) error {
	t, err := s.Queued(token, "assistant", text)
	if err != nil {
		return err
	}
	got, err := load.Run(ctx, t, load.Options{Conns: 32, Calls: n})
	if err == nil && got.Errors > 0 {
		err = got.Err
	}
	return err
}

// pickups returns the 99th percentile of how many milliseconds queued runs wait for a worker, one at a time.
func (l *lab) pickups(ctx context.Context, s *stoa.Server, token string) (float64, error) {
	var ms []float64
	for range pick(l.quick, 100, 400) {
		d, err := s.PickUp(ctx, token, "assistant", text)
		if err != nil {
			return 0, err
		}
		ms = append(ms, float64(d.Microseconds())/1000)
	}
	slices.Sort(ms)
	return ms[(len(ms)-1)*99/100], nil
}

const (
	floodRun   = 20 * time.Millisecond // what one run of the flooding tenant takes
	floodDepth = 2000
)

// neighbours has one tenant keep its queue full, and measures another that calls now and then: during that, and while the
// first is suspended.
func neighbours(ctx context.Context, l *lab, _ func(...string) bool, r *report) error {
	database, err := l.database(ctx)
	if err != nil {
		return err
	}
	s, err := l.stoa(ctx, l.cluster.URL(database))
	if err != nil {
		return err
	}
	defer s.Stop()
	quiet, err := s.Create(ctx, stoa.Plain("quiet"))
	if err != nil {
		return err
	}
	noisy := stoa.Slow("flood", floodRun)
	noisy.Limits = map[string]any{"queue_depth": floodDepth}
	flood, err := s.Create(ctx, noisy)
	if err != nil {
		return err
	}
	if err := fill(ctx, s, flood, floodDepth*9/10); err != nil {
		return err
	}
	call, err := s.Blocking(quiet, "assistant", text)
	if err != nil {
		return err
	}
	var ratios, waits series
	for range l.rounds {
		alone, aloneWait, err := l.neighbour(ctx, s, call, quiet, "")
		if err != nil {
			return err
		}
		during, duringWait, err := l.neighbour(ctx, s, call, quiet, flood)
		if err != nil {
			return err
		}
		progress("quiet tenant: p99 %v alone, %v during a flood; picked up after %.1f ms and %.1f ms", alone, during, aloneWait, duringWait)
		ratios = append(ratios, float64(during)/float64(alone))
		waits = append(waits, max(0, duringWait-aloneWait)*float64(time.Millisecond)/float64(floodRun))
	}
	r.rows = append(r.rows,
		atMost("P9", "a quiet tenant's p99 with another tenant flooding its queue ÷ without, live calls one after the other", 2, ratios),
		atMost("P9", fmt.Sprintf("what a queued run of the quiet tenant waits longer then (p99), in runs of the flood (%v each)", floodRun), 1, waits))
	return nil
}

// neighbour measures the quiet tenant: the p99 of its live calls, and in milliseconds that of its queued runs' waiting.
// Where flood is a token the other tenant works and sends meanwhile, else it is suspended.
func (l *lab) neighbour(ctx context.Context, s *stoa.Server, call load.Target, quiet, flood string) (p99 time.Duration, wait float64, err error) {
	if err := s.Turn(ctx, "flood", flood != ""); err != nil {
		return 0, 0, err
	}
	time.Sleep(2 * floodRun) // what is at work ends
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if t, err := s.Queued(flood, "assistant", text); err == nil && flood != "" {
			_, _ = load.Run(ctx, t, load.Options{Conns: 4, For: time.Hour}) // most of it is refused
		}
	}()
	m, err := l.drive(ctx, s.Process, call, 1)
	if err == nil {
		wait, err = l.pickups(ctx, s, quiet)
	}
	cancel()
	<-ended
	return m.p99, wait, err
}
