package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"stoa/agentsvc/surface"
)

// grace is what is left for answers under way after the time for draining is over.
const grace = 5 * time.Second

// drain stops the process so that nobody notices: it is not ready and serves on until the balancer knows, begins no more
// runs and finishes or hands back those under way, ends the streams with a hint to come back, and closes. It does not
// wait for a balancer where the house falls first.
func (h *house) drain(ctx, falls context.Context, front *surface.Server, server *http.Server) error {
	h.stopping.Store(true)
	front.Drain()
	h.log.Info("stopping", "inflight", h.pool.Inflight(), "delay", h.settings.drainDelay)
	left, cancel := context.WithTimeout(ctx, h.settings.shutdown)
	defer cancel()
	select {
	case <-time.After(h.settings.drainDelay):
	case <-falls.Done():
	}
	err := h.pool.Drain(left)
	last, cancelLast := context.WithTimeout(ctx, grace)
	defer cancelLast()
	front.EndStreams()
	if serr := server.Shutdown(last); serr != nil {
		err = errors.Join(err, server.Close())
	}
	h.bus.Flush(last) // others go on with what was handed back
	return err
}
