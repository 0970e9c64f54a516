package server

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
	"stoa/cmd/stoa/server/systemd"
)

// closeGrace is the time for responses in progress after --shutdown-timeout is over.
const closeGrace = 5 * time.Second

// listeners are what answers requests: the protocols, and the servers that carry them.
type listeners struct {
	frontend *surface.Server
	http     *http.Server
	grpc     *a2agrpc.Server // nil in a worker
}

// drain stops the process without losing a request or a run. The steps are ordered:
//
//   - Responses ask clients to open a new connection for the next request, and /ready reports 503 until the load
//     balancers have stopped sending requests (at most --drain-delay). A turn that still arrives starts here at once,
//     or is refused; a web process leaves it to the workers.
//   - The worker pools accept no more turns, which are refused with 503, and start no more runs. They wait for the
//     running ones until --shutdown-timeout is over, stop the rest and release their leases, so that another process
//     continues these runs without a lost attempt.
//   - Streams end with a hint to reconnect, and the HTTP and gRPC servers close within closeGrace.
//   - The signals that announce the released runs are flushed.
//
// aborted ends when a loop of the process has failed; then drain does not wait for load balancers. The lease renewal
// keeps running until drain returns. What fails is logged: the process ends all the same, and others rescue its runs.
func (s *Server) drain(ctx, aborted context.Context, l listeners) {
	s.Log.Info("stopping", "inflight", s.Execution.Inflight())
	s.notifyManager(systemd.Stopping)
	left, cancel := context.WithTimeout(ctx, s.Settings.Shutdown.Timeout)
	defer cancel()
	// Clients that reuse connections would otherwise never reach the other processes.
	l.frontend.Drain()
	if l.grpc != nil {
		l.grpc.Drain()
	}
	for _, p := range s.Execution.pools() {
		p.BeginDrain()
	}
	s.network.drainer.beginStopping()
	s.reporter.Wake()
	s.network.drainer.awaitBalancers(aborted, s.Settings.Shutdown.DrainDelay)
	var work errgroup.Group
	// The pools drain in parallel: together they have only one shutdown timeout.
	for _, p := range s.Execution.pools() {
		work.Go(func() error { return p.Drain(left) })
	}
	if err := work.Wait(); err != nil {
		s.Log.Warn("runs of this process could not be returned to the queue: they are continued when its leases have expired", "error", err)
	}
	last, cancelLast := context.WithTimeout(ctx, closeGrace)
	defer cancelLast()
	// After the runs: a stream shows the end of a run that finishes during the drain.
	l.frontend.EndStreams()
	var grpcClose errgroup.Group
	if l.grpc != nil {
		grpcClose.Go(func() error { l.grpc.Close(last); return nil })
	}
	// Responses that are still in progress after closeGrace are cut off.
	if err := l.http.Shutdown(last); err != nil {
		_ = l.http.Close()
	}
	_ = grpcClose.Wait()
	s.bus.Flush(last) // other processes learn at once that runs were released
}

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
	stoppingSince     atomic.Pointer[time.Time] // set once by beginStopping
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
	if d.isStopping() {
		d.notReadyResponses.Add(1)
		return errors.New("stopping")
	}
	return nil
}

// beginStopping makes the process not ready. It may be called again.
func (d *drainer) beginStopping() {
	now := time.Now()
	d.stoppingSince.CompareAndSwap(nil, &now)
}

// isStopping reports whether the process is stopping.
func (d *drainer) isStopping() bool { return d.stoppingSince.Load() != nil }

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
	d.beginStopping()
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
