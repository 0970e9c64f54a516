package main

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy"
)

// Timing of the inspection of the audit trail: how often the process with the lease inspects new entries, how often
// it reads every entry again, and how long its lease lasts without a renewal.
const (
	inspectInterval     = 5 * time.Minute
	fullInspectInterval = 24 * time.Hour
	inspectLeaseTime    = 3 * inspectInterval
)

// auditInspector verifies the audit trail in the background. Of all processes on a database the one with the lease
// does so. Its fields are used by the goroutine of run only.
type auditInspector struct {
	h          *server
	lease      *store.LeaderLease
	inspector  *tenancy.Inspector // remembers how far each chain was verified
	lastFullAt time.Time          // start of the last full inspection by this process
}

// newAuditInspector returns the inspector of h with a lease holder's id that is unique to this process.
func newAuditInspector(h *server) *auditInspector {
	return &auditInspector{h: h, lease: store.NewLeaderLease(h.db, "audit", agentsvc.NewID()), inspector: h.apps.NewInspector()}
}

// run inspects at once and then every inspectInterval until ctx ends, and releases the lease.
func (i *auditInspector) run(ctx context.Context) error {
	tick := time.NewTicker(inspectInterval)
	defer tick.Stop()
	for {
		if err := i.inspectOnce(ctx); err != nil && ctx.Err() == nil {
			i.h.log.Warn("the audit trail could not be verified", "error", err)
		}
		select {
		case <-ctx.Done():
			left, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = i.lease.Release(left) // on failure the lease expires by itself
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// inspectOnce inspects the trail if this process has the lease, and logs each new flaw as an error.
func (i *auditInspector) inspectOnce(ctx context.Context) error {
	if mine, err := i.lease.Acquire(ctx, inspectLeaseTime); err != nil || !mine {
		// Another process had the lease: what was verified here is out of date.
		i.lastFullAt = time.Time{}
		return err
	}
	// The first inspection after taking over the lease is a full one, because lastFullAt is zero.
	full := time.Since(i.lastFullAt) >= fullInspectInterval
	if full {
		i.lastFullAt = time.Now()
	}
	found, err := i.inspector.InspectChains(ctx, full)
	for _, f := range found {
		i.h.log.Error("the audit trail was changed: run stoa audit verify", "app", f.App, "app_id", f.AppID, "entry", f.Seq, "id", f.ID, "flaw", f.Text)
	}
	return err
}

// observeAuditFlaws shows how many flaws are known. They are stored in the database, so that every process shows
// those that another process found.
func (h *server) observeAuditFlaws(ctx context.Context, show func(float64, ...metric.ObserveOption)) {
	ctx, cancel := context.WithTimeout(ctx, queueStatsTimeout)
	defer cancel()
	if _, n, err := h.apps.ListFoundFlaws(ctx, ""); err == nil {
		show(float64(n))
	}
}
