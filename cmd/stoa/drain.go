package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"stoa/agentsvc/surface"
)

// closeGrace is what is left for answers under way after the time for draining is over.
const closeGrace = 5 * time.Second

// drain stops the process so that nobody notices: it is not ready and serves on until the balancers know, begins no more
// runs and finishes or hands back those under way, ends the streams with a hint to come back, and closes. It does not
// wait for balancers where the house falls first.
func (h *server) drain(ctx, aborted context.Context, frontend *surface.Server, server *http.Server) error {
	h.log.Info("stopping", "inflight", h.countInflight())
	left, cancel := context.WithTimeout(ctx, h.settings.shutdownTimeout)
	defer cancel()
	frontend.Drain()
	if h.grpcServer != nil {
		h.grpcServer.Drain()
	}
	h.drainer.awaitBalancers(aborted, h.settings.drainDelay)
	var work errgroup.Group
	for _, p := range h.workerPools() {
		work.Go(func() error { return p.Drain(left) })
	}
	err := work.Wait()
	last, cancelLast := context.WithTimeout(ctx, closeGrace)
	defer cancelLast()
	frontend.EndStreams()
	var calls errgroup.Group
	if h.grpcServer != nil {
		calls.Go(func() error { h.grpcServer.Close(last); return nil })
	}
	if serr := server.Shutdown(last); serr != nil {
		err = errors.Join(err, server.Close())
	}
	_ = calls.Wait()
	h.bus.Flush(last) // others go on with what was handed back
	return err
}
