package ratelimit

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"stoa/tenancy/db"
)

// fallbackCooldown is how long a failed backend is not used.
const fallbackCooldown = 5 * time.Second

// NewFallback returns a backend that counts in first, and in second while first fails or takes longer than timeout.
// After a failure first is not used for fallbackCooldown; then a single call tries it again. The backends do not
// exchange counts: after a change a window begins anew, so that up to twice the limit may pass in it. name is for the
// log.
func NewFallback(first, second Backend, timeout time.Duration, name string, log *slog.Logger) Backend {
	return &fallback{primary: first, secondary: second, timeout: timeout, cooldown: fallbackCooldown, name: name, log: log}
}

// fallback is the backend of NewFallback. All fields but pausedUntil are read-only.
type fallback struct {
	primary, secondary Backend
	timeout            time.Duration
	cooldown           time.Duration
	name               string
	log                *slog.Logger
	// pausedUntil is the time until which primary is not used, in nanoseconds since 1970; 0 while it is in use.
	pausedUntil atomic.Int64
}

// addCounters implements [Backend]. When the pause has ended, the CompareAndSwap lets exactly one call try primary and
// extends the pause for the others.
func (f *fallback) addCounters(ctx context.Context, tenant db.ID, at func(now time.Time) []counter) (outcome, error) {
	until := f.pausedUntil.Load()
	now := time.Now()
	if until != 0 && (now.UnixNano() < until || !f.pausedUntil.CompareAndSwap(until, now.Add(f.cooldown).UnixNano())) {
		return f.secondary.addCounters(ctx, tenant, at)
	}
	if err := ctx.Err(); err != nil {
		return outcome{}, err
	}
	// A caller's cancellation must not be taken for a failure of the backend.
	attemptCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.timeout)
	defer cancel()
	out, err := f.primary.addCounters(attemptCtx, tenant, at)
	if err == nil {
		if f.pausedUntil.Swap(0) != 0 {
			f.log.Info("limits are counted in their own backend again", "place", f.name)
		}
		return out, nil
	}
	if f.pausedUntil.Swap(time.Now().Add(f.cooldown).UnixNano()) == 0 {
		f.log.Warn("limits are counted in the platform's database for now", "instead_of", f.name, "error", err)
	}
	return f.secondary.addCounters(ctx, tenant, at)
}
