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
	inspectEvery = 5 * time.Minute
	afreshEvery  = 24 * time.Hour
	inspectTime  = 3 * inspectEvery
)

// inspector watches the audit trail.
type inspector struct {
	h      *house
	duty   *store.Duty
	trail  *tenancy.Inspector
	afresh time.Time // when it last began to read everything
}

func newInspector(h *house) *inspector {
	return &inspector{h: h, duty: store.NewDuty(h.db, "audit", agentsvc.NewID()), trail: h.apps.NewInspector()}
}

// run inspects until ctx ends.
func (i *inspector) run(ctx context.Context) error {
	tick := time.NewTicker(inspectEvery)
	defer tick.Stop()
	for {
		if err := i.round(ctx); err != nil && ctx.Err() == nil {
			i.h.log.Warn("the audit trail could not be looked at", "error", err)
		}
		select {
		case <-ctx.Done():
			left, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = i.duty.Leave(left) // else it is over by itself
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// round looks once, if this process has the duty, and logs what it finds.
func (i *inspector) round(ctx context.Context) error {
	if mine, err := i.duty.Take(ctx, inspectTime); err != nil || !mine {
		i.afresh = time.Time{} // another one knows by then how it stands
		return err
	}
	afresh := time.Since(i.afresh) >= afreshEvery
	if afresh {
		i.afresh = time.Now()
	}
	found, err := i.trail.Inspect(ctx, afresh)
	for _, f := range found {
		i.h.log.Error("the audit trail is not as it was written: run stoa audit verify", "app", f.App, "app_id", f.AppID, "entry", f.Seq, "id", f.ID, "flaw", f.Text)
	}
	return err
}

// flaws shows how many flaws of the audit trail are known, in whichever process they were found.
func (h *house) flaws(ctx context.Context, show func(float64, ...metric.ObserveOption)) {
	ctx, cancel := context.WithTimeout(ctx, queueTime)
	defer cancel()
	if _, n, err := h.apps.Damages(ctx, ""); err == nil {
		show(float64(n))
	}
}
