package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"stoa/agentsvc/surface"
)

// grace is what is left for answers under way after the time for draining is over.
const grace = 5 * time.Second

// drain stops the process so that nobody notices: it is not ready and serves on until the balancers know, begins no more
// runs and finishes or hands back those under way, ends the streams with a hint to come back, and closes. It does not
// wait for balancers where the house falls first.
func (h *house) drain(ctx, falls context.Context, front *surface.Server, server *http.Server) error {
	h.log.Info("stopping", "inflight", h.inflight())
	left, cancel := context.WithTimeout(ctx, h.settings.shutdown)
	defer cancel()
	front.Drain()
	if h.calls != nil {
		h.calls.Drain()
	}
	h.leave.take(falls, h.settings.drainDelay)
	var work errgroup.Group
	for _, p := range h.pools() {
		work.Go(func() error { return p.Drain(left) })
	}
	err := work.Wait()
	last, cancelLast := context.WithTimeout(ctx, grace)
	defer cancelLast()
	front.EndStreams()
	var calls errgroup.Group
	if h.calls != nil {
		calls.Go(func() error { h.calls.Close(last); return nil })
	}
	if serr := server.Shutdown(last); serr != nil {
		err = errors.Join(err, server.Close())
	}
	_ = calls.Wait()
	h.bus.Flush(last) // others go on with what was handed back
	return err
}
