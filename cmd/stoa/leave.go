package main

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// How a process that stops takes leave: who asks whether it is ready must hear that it is not leaveAnswers times, and
// then no request may come for leaveQuiet.
const (
	leaveAnswers = 3
	leaveQuiet   = 500 * time.Millisecond
)

// leave is how a process that stops takes leave of the balancers before it: it goes on serving until they have heard
// that it is not ready and send their requests elsewhere. Where nobody asks it has nothing to wait for.
type leave struct {
	stopping atomic.Bool
	asked    atomic.Bool
	answers  atomic.Int64 // how often it said that it is not ready
	last     atomic.Int64 // when the last request came, in microseconds since began
	began    time.Time
}

func newLeave() *leave { return &leave{began: time.Now()} }

// ready reports whether requests may come.
func (l *leave) ready(context.Context) error {
	l.asked.Store(true)
	if l.stopping.Load() {
		l.answers.Add(1)
		return errors.New("stopping")
	}
	return nil
}

// called keeps when the last request came that was sent for its own sake.
func (l *leave) called() { l.last.Store(time.Since(l.began).Microseconds()) }

// watch keeps that of the requests to next.
func (l *leave) watch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ready" && r.URL.Path != "/health" {
			l.called()
		}
		next.ServeHTTP(w, r)
	})
}

// take says that the process is not ready any more, and returns when the balancers have taken note, at the limit at the
// latest, or when ctx ends.
func (l *leave) take(ctx context.Context, limit time.Duration) {
	l.stopping.Store(true)
	if !l.asked.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for l.answers.Load() < leaveAnswers || time.Since(l.began)-time.Duration(l.last.Load())*time.Microsecond < leaveQuiet {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
