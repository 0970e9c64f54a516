package main

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// How a process that stops takes leave: who asks whether it is ready must hear that it is not minNotReadyResponses times, and
// then no request may come for quietPeriod.
const (
	minNotReadyResponses = 3
	quietPeriod          = 500 * time.Millisecond
)

// drainer is how a process that stops takes leave of the balancers before it: it goes on serving until they have heard
// that it is not ready and send their requests elsewhere. Where nobody asks it has nothing to wait for.
type drainer struct {
	stopping          atomic.Bool
	probed            atomic.Bool
	notReadyResponses atomic.Int64 // how often it said that it is not ready
	lastRequest       atomic.Int64 // when the last request came, in microseconds since began
	startedAt         time.Time
}

func newDrainer() *drainer { return &drainer{startedAt: time.Now()} }

// checkReady reports whether requests may come.
func (l *drainer) checkReady(context.Context) error {
	l.probed.Store(true)
	if l.stopping.Load() {
		l.notReadyResponses.Add(1)
		return errors.New("stopping")
	}
	return nil
}

// noteRequest keeps when the last request came that was sent for its own sake.
func (l *drainer) noteRequest() { l.lastRequest.Store(time.Since(l.startedAt).Microseconds()) }

// trackRequests keeps that of the requests to next.
func (l *drainer) trackRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ready" && r.URL.Path != "/health" {
			l.noteRequest()
		}
		next.ServeHTTP(w, r)
	})
}

// awaitBalancers says that the process is not ready any more, and returns when the balancers have taken note, at the limit at the
// latest, or when ctx ends.
func (l *drainer) awaitBalancers(ctx context.Context, limit time.Duration) {
	l.stopping.Store(true)
	if !l.probed.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for l.notReadyResponses.Load() < minNotReadyResponses || time.Since(l.startedAt)-time.Duration(l.lastRequest.Load())*time.Microsecond < quietPeriod {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
