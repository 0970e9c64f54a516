package agentsvc

import "context"

// LeaseCheck confirms that this process still has the lease of a run (store.Lease). It is passed with the run, never found
// in a context. The zero value is that of work outside of a run, which needs no lease.
type LeaseCheck struct {
	// Confirm renews the lease if it may have expired. It cancels the run's context if the lease is lost or cannot be
	// confirmed; then [LeaseCheck.Check] fails. Nil: there is nothing to confirm.
	Confirm func(ctx context.Context)
}

// Check returns nil if the work of ctx may have an external effect now: ctx has not ended and the lease is confirmed.
// Otherwise it returns the cause of ctx's end, [ErrLeaseLost] where another worker has the lease. Callers use it before
// each call that cannot be undone: a process that was suspended does not notice by itself that its lease expired
// meanwhile.
func (l LeaseCheck) Check(ctx context.Context) error {
	if l.Confirm != nil && ctx.Err() == nil {
		l.Confirm(ctx)
	}
	return context.Cause(ctx)
}
