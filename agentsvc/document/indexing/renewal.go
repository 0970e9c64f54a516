package indexing

import (
	"context"
	"errors"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/document/corpus"
	"stoa/tenancy"
)

// releaseTimeout bounds what a pass that has ended still writes.
const releaseTimeout = 5 * time.Second

// renewLease renews the lease until ctx ends, and stops the pass when the lease is lost or cannot be renewed in time, or
// when the app is not active any more.
func (r *passRun) renewLease(ctx context.Context) {
	renewedAt := time.Now() // of the last call that succeeded, before it was made
	tick := time.NewTicker(r.x.options.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.checkNow:
			r.checkActive(ctx)
			continue
		case <-tick.C:
		}
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, r.x.options.Lease/3)
		err := r.x.passes.Renew(limited, r.pass)
		cancel()
		switch {
		case err == nil:
			renewedAt = began
			r.checkActive(ctx)
		case errors.Is(err, corpus.ErrPassLost):
			r.stop(err)
			return
		case time.Since(renewedAt) > r.x.options.Lease*2/3: // a further try would end after the lease
			r.stop(corpus.ErrPassLost)
			return
		}
	}
}

// requestCheck makes renewLease check the app now. It does not block.
func (r *passRun) requestCheck() {
	select {
	case r.checkNow <- struct{}{}:
	default:
	}
	select {
	case r.appChanged <- struct{}{}:
	default:
	}
}

// checkActive stops the pass if its app is suspended or deleted.
func (r *passRun) checkActive(ctx context.Context) {
	if err := r.x.options.CheckActive(ctx, r.pass.Tenant); errors.Is(err, tenancy.ErrSuspended) || errors.Is(err, agentsvc.CodeNotFound) {
		r.stop(errStopped)
	}
}

// release gives the pass back unless it is lost. Its context has ended if the process stops, so that it uses one of its
// own.
func (r *passRun) release(end corpus.Release) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), releaseTimeout)
	defer cancel()
	err := r.x.passes.Release(ctx, r.pass, end)
	if err != nil && !errors.Is(err, corpus.ErrPassLost) {
		r.log().WarnContext(ctx, "a pass could not be given back: it goes on at the end of its lease", "error", err)
	}
	switch {
	case err != nil:
	case end.After == 0:
		r.x.options.Bus.Publish(TopicPass, string(r.pass.Tenant))
	case end.After <= wakeHorizon:
		time.AfterFunc(end.After, r.x.wakeUp)
	}
}
