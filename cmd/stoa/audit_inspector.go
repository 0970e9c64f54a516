package main

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy"
)

// Of looks at the audit trail: how often one of all processes takes one, how often it reads everything, and how long it may
// be gone until another does.
const (
	inspectInterval     = 5 * time.Minute
	fullInspectInterval = 24 * time.Hour
	inspectLeaseTime    = 3 * inspectInterval
)

// auditInspector watches the audit trail.
type auditInspector struct {
	h          *server
	lease      *store.LeaderLease
	inspector  *tenancy.Inspector
	lastFullAt time.Time // when it last began to read everything
}

func newAuditInspector(h *server) *auditInspector {
	return &auditInspector{h: h, lease: store.NewLeaderLease(h.db, "audit", agentsvc.NewID()), inspector: h.apps.NewInspector()}
}

// run inspects until ctx ends.
func (i *auditInspector) run(ctx context.Context) error {
	tick := time.NewTicker(inspectInterval)
	defer tick.Stop()
	for {
		if err := i.inspectOnce(ctx); err != nil && ctx.Err() == nil {
			i.h.log.Warn("the audit trail could not be looked at", "error", err)
		}
		select {
		case <-ctx.Done():
			left, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = i.lease.Release(left) // else it is over by itself
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// inspectOnce looks once, if this process has the duty, and logs what it finds.
func (i *auditInspector) inspectOnce(ctx context.Context) error {
	if mine, err := i.lease.Acquire(ctx, inspectLeaseTime); err != nil || !mine {
		i.lastFullAt = time.Time{} // another one knows by then how it stands
		return err
	}
	full := time.Since(i.lastFullAt) >= fullInspectInterval
	if full {
		i.lastFullAt = time.Now()
	}
	found, err := i.inspector.InspectChains(ctx, full)
	for _, f := range found {
		i.h.log.Error("the audit trail is not as it was written: run stoa audit verify", "app", f.App, "app_id", f.AppID, "entry", f.Seq, "id", f.ID, "flaw", f.Text)
	}
	return err
}

// observeAuditFlaws shows how many flaws of the audit trail are known, in whichever process they were found.
func (h *server) observeAuditFlaws(ctx context.Context, show func(float64, ...metric.ObserveOption)) {
	ctx, cancel := context.WithTimeout(ctx, queueStatsTimeout)
	defer cancel()
	if _, n, err := h.apps.ListFoundFlaws(ctx, ""); err == nil {
		show(float64(n))
	}
}
