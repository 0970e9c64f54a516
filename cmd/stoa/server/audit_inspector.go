package server

import (
	"context"
	"log/slog"
	"time"

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

// AuditInspector verifies the audit trail in the background. Of all processes on a database the one with the lease
// does so. Its fields are used by the goroutine of run only.
type AuditInspector struct {
	log        *slog.Logger
	lease      *store.LeaderLease
	inspector  *tenancy.Inspector // remembers how far each chain was verified
	lastFullAt time.Time          // start of the last full inspection by this process
}

// NewAuditInspector returns an inspector of the audit trail of apps; lease elects it among all processes.
func NewAuditInspector(lease *store.LeaderLease, apps *tenancy.Service, log *slog.Logger) *AuditInspector {
	return &AuditInspector{log: log, lease: lease, inspector: apps.NewInspector()}
}

// run inspects at once and then every inspectInterval until ctx ends, and releases the lease.
func (i *AuditInspector) run(ctx context.Context) error {
	tick := time.NewTicker(inspectInterval)
	defer tick.Stop()
	for {
		if err := i.InspectOnce(ctx); err != nil && ctx.Err() == nil {
			i.log.Warn("the audit trail could not be verified", "error", err)
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

// InspectOnce inspects the trail if this process has the lease, and logs each new flaw as an error.
func (i *AuditInspector) InspectOnce(ctx context.Context) error {
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
		i.log.Error("the audit trail was changed: run stoa audit verify", "app", f.App, "app_id", f.AppID, "entry", f.Seq, "id", f.ID, "flaw", f.Text)
	}
	return err
}
