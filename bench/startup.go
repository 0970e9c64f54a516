package main

import (
	"context"
	"time"

	"stoa/bench/proc"
)

// startup starts stoa on an existing SQLite database, again and again.
func startup(ctx context.Context, l *lab, _ func(...string) bool, r *report) error {
	url := l.sqlite()
	first, err := l.stoa(ctx, url)
	if err != nil {
		return err
	}
	first.Stop()
	var times, sizes series
	for round := range l.rounds {
		s, err := l.stoa(ctx, url)
		if err != nil {
			return err
		}
		times = append(times, float64(s.Startup.Microseconds())/1000)
		if l.quick && round > 0 {
			s.Stop()
			continue
		}
		size, err := settled(ctx, s.PID(), 3*time.Second)
		s.Stop()
		if err != nil {
			return err
		}
		sizes = append(sizes, size)
	}
	r.rows = append(r.rows,
		atMost("START", "ms from the start of the process to the first 200 on /health (SQLite, existing database)", 300, times),
		atMost("START", "MB of memory (RSS) when idle, 3 s after the start", 60, sizes))
	return nil
}

// settled waits and then takes the median of a second of readings of the process's memory, in MB.
func settled(ctx context.Context, pid int, wait time.Duration) (float64, error) {
	if err := sleep(ctx, wait); err != nil {
		return 0, err
	}
	var got series
	for range 20 {
		rss, err := proc.RSS(pid)
		if err != nil {
			return 0, err
		}
		got = append(got, float64(rss)/1e6)
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return got.median(), nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
