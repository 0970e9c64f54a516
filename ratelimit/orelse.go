package ratelimit

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"stoa/tenancy/db"
)

// spareFor is how long a place that failed is left alone.
const spareFor = 5 * time.Second

// OrElse returns a place that counts in first, and in second while first fails or takes longer than patience. Then it
// leaves first alone for some seconds, after which one call tries it again. Each place knows only what was counted there:
// what was used of a window before a change of place counts for nothing after it.
func OrElse(first, second Place, patience time.Duration, name string, log *slog.Logger) Place {
	return &orElse{first: first, second: second, patience: patience, spare: spareFor, name: name, log: log}
}

type orElse struct {
	first, second Place
	patience      time.Duration
	spare         time.Duration
	name          string
	log           *slog.Logger
	until         atomic.Int64 // first is left alone, in nanoseconds since 1970; 0 = it is in use
}

func (o *orElse) add(ctx context.Context, tenant db.ID, at func(now time.Time) []counter) (outcome, error) {
	until := o.until.Load()
	now := time.Now()
	if until != 0 && (now.UnixNano() < until || !o.until.CompareAndSwap(until, now.Add(o.spare).UnixNano())) {
		return o.second.add(ctx, tenant, at)
	}
	if err := ctx.Err(); err != nil {
		return outcome{}, err
	}
	// A caller that leaves is no sign that the place is down.
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.patience)
	defer cancel()
	out, err := o.first.add(within, tenant, at)
	if err == nil {
		if o.until.Swap(0) != 0 {
			o.log.Info("limits are counted where they belong again", "place", o.name)
		}
		return out, nil
	}
	if o.until.Swap(time.Now().Add(o.spare).UnixNano()) == 0 {
		o.log.Warn("limits are counted in the platform's database for now", "instead_of", o.name, "error", err)
	}
	return o.second.add(ctx, tenant, at)
}
