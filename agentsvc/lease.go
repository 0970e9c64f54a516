package agentsvc

import "context"

// leaseRenewalKey is the context key of WithLeaseRenewal.
type leaseRenewalKey struct{}

// WithLeaseRenewal returns a context for work under a lease. [CheckLease] calls renew, which must cancel the work's
// context if the lease is lost or cannot be confirmed.
func WithLeaseRenewal(ctx context.Context, renew func(ctx context.Context)) context.Context {
	return context.WithValue(ctx, leaseRenewalKey{}, renew)
}

// CheckLease returns nil if the work of ctx may have an external effect now: ctx has not ended and its lease, if it
// has one, is confirmed. Otherwise it returns the cause of ctx's end, [ErrLeaseLost] where another worker has the
// lease. Callers use it before each call that cannot be undone: a process that was suspended does not notice by
// itself that its lease expired meanwhile.
func CheckLease(ctx context.Context) error {
	if renew, ok := ctx.Value(leaseRenewalKey{}).(func(context.Context)); ok && ctx.Err() == nil {
		renew(ctx)
	}
	return context.Cause(ctx)
}
