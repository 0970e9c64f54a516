package agentsvc

import "context"

type leaseRenewalKey struct{}

// WithLeaseRenewal returns a context for work under a lease. Renew is called before each of its effects, and ends the work's
// context where the lease is gone, or where that cannot be known.
func WithLeaseRenewal(ctx context.Context, renew func(ctx context.Context)) context.Context {
	return context.WithValue(ctx, leaseRenewalKey{}, renew)
}

// CheckLease returns nil if what ctx is about to do is still to be done here: ctx has not ended, and where it is under a lease
// nobody else has that. Else it says why not, as [context.Cause] does: [ErrLeaseLost] where somebody has. It is asked before
// each call whose effect cannot be taken back, since a process that was stopped for a while notices nothing by itself.
func CheckLease(ctx context.Context) error {
	if renew, ok := ctx.Value(leaseRenewalKey{}).(func(context.Context)); ok && ctx.Err() == nil {
		renew(ctx)
	}
	return context.Cause(ctx)
}
