package server

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// Conditions that end the first phase of a shutdown. Load balancers need several failed probes before they stop
// sending requests, and requests that are already on their way must still be answered.
const (
	minNotReadyResponses = 3                      // probes of /ready that have been answered with "stopping"
	quietPeriod          = 500 * time.Millisecond // time without a request of a client
)

// drainer keeps the readiness of the process and, in a shutdown, detects when the load balancers have stopped sending
// requests: they probe /ready, see that the process is stopping and route elsewhere. If /ready was never probed there
// is no load balancer to wait for. All fields are safe for concurrent use.
type drainer struct {
	stoppingSince     atomic.Pointer[time.Time] // set once by awaitBalancers
	probed            atomic.Bool               // /ready has been requested at least once
	notReadyResponses atomic.Int64              // probes that were answered with "stopping"
	lastRequest       atomic.Int64              // time of the last client request, in microseconds since startedAt
	startedAt         time.Time                 // monotonic reference for lastRequest; set by newDrainer
}

// newDrainer returns a drainer whose clock starts now.
func newDrainer() *drainer { return &drainer{startedAt: time.Now()} }

// checkReady returns an error while the process is stopping; see [Server.checkReady].
func (d *drainer) checkReady(context.Context) error {
	d.probed.Store(true)
	if d.stoppingSince.Load() != nil {
		d.notReadyResponses.Add(1)
		return errors.New("stopping")
	}
	return nil
}

// noteRequest records that a client sent a request. Probes do not count.
func (d *drainer) noteRequest() { d.lastRequest.Store(time.Since(d.startedAt).Microseconds()) }

// trackRequests returns next with noteRequest before every request that is not a probe.
func (d *drainer) trackRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Probes arrive until the end: they must not extend the quiet period.
		if r.URL.Path != "/ready" && r.URL.Path != "/health" {
			d.noteRequest()
		}
		next.ServeHTTP(w, r)
	})
}

// awaitBalancers makes the process not ready and returns when the load balancers have noticed (minNotReadyResponses
// and quietPeriod hold), after limit at the latest, or when ctx ends.
func (d *drainer) awaitBalancers(ctx context.Context, limit time.Duration) {
	now := time.Now()
	d.stoppingSince.Store(&now)
	// No load balancer: a developer's server stops at once.
	if !d.probed.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for d.notReadyResponses.Load() < minNotReadyResponses || time.Since(d.startedAt)-time.Duration(d.lastRequest.Load())*time.Microsecond < quietPeriod {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
