package ratelimit

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"stoa/tenancy/db"
)

// fallbackCooldown is how long a place that failed is left alone.
const fallbackCooldown = 5 * time.Second

// NewFallback returns a place that counts in first, and in second while first fails or takes longer than patience. Then it
// leaves first alone for some seconds, after which one call tries it again. Each place knows only what was counted there:
// what was used of a window before a change of place counts for nothing after it.
func NewFallback(first, second Backend, timeout time.Duration, name string, log *slog.Logger) Backend {
	return &fallback{primary: first, secondary: second, timeout: timeout, cooldown: fallbackCooldown, name: name, log: log}
}

type fallback struct {
	primary, secondary Backend
	timeout            time.Duration
	cooldown           time.Duration
	name               string
	log                *slog.Logger
	pausedUntil        atomic.Int64 // first is left alone, in nanoseconds since 1970; 0 = it is in use
}

func (o *fallback) addCounters(ctx context.Context, tenant db.ID, at func(now time.Time) []counter) (outcome, error) {
	until := o.pausedUntil.Load()
	now := time.Now()
	if until != 0 && (now.UnixNano() < until || !o.pausedUntil.CompareAndSwap(until, now.Add(o.cooldown).UnixNano())) {
		return o.secondary.addCounters(ctx, tenant, at)
	}
	if err := ctx.Err(); err != nil {
		return outcome{}, err
	}
	// A caller that leaves is no sign that the place is down.
	attemptCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.timeout)
	defer cancel()
	out, err := o.primary.addCounters(attemptCtx, tenant, at)
	if err == nil {
		if o.pausedUntil.Swap(0) != 0 {
			o.log.Info("limits are counted where they belong again", "place", o.name)
		}
		return out, nil
	}
	if o.pausedUntil.Swap(time.Now().Add(o.cooldown).UnixNano()) == 0 {
		o.log.Warn("limits are counted in the platform's database for now", "instead_of", o.name, "error", err)
	}
	return o.secondary.addCounters(ctx, tenant, at)
}
