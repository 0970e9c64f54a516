package invoice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"stoa/billing/ledger"
	"stoa/billing/price"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// FinalizeDueInvoices makes the drafts final of all months that ended at least [Options.FinalizeGrace] ago. Any number
// of processes may do so at once: each draft becomes final once.
func (s *Service) FinalizeDueInvoices(ctx context.Context) error {
	if s.finalizeGrace <= 0 {
		return nil
	}
	type books struct {
		app   tenancy.App
		state ledger.Billed
	}
	var all []books
	var now int64
	// The default app has no row in table app.
	err := queryOutside(s.db.Platform())(ctx, func(r db.Row) error {
		var b books
		err := r.Scan((*string)(&b.app.ID), &b.app.Name, &b.app.Plan, &b.state.Month, &b.state.Until, &b.state.Recorded, &now)
		all = append(all, b)
		return err
	}, `SELECT a.tenant, a.name, a.plan, COALESCE(l.billed_month, ''), COALESCE(l.billed_until, 0), COALESCE(l.billed_recorded, 0), stoa_now()
		FROM (SELECT tenant, name, plan FROM app WHERE status <> 'deleting' UNION ALL SELECT $1, $2, '') a LEFT JOIN ledger l ON l.app = a.tenant
		ORDER BY 1`, string(tenancy.DefaultID), tenancy.DefaultName)
	if err != nil {
		return fmt.Errorf("look for invoices that are due: %w", err)
	}
	terms, err := price.ReadTerms(ctx, price.QueryFunc(queryOutside(s.db.Platform())))
	if err != nil {
		return fmt.Errorf("look for invoices that are due: %w", err)
	}
	before := time.UnixMicro(now).UTC().Add(-s.finalizeGrace).UnixMicro()
	var errs []error
	for _, b := range all {
		if err := s.finalizeDraftsUntil(ctx, terms, b.app, b.state, before); err != nil {
			errs = append(errs, fmt.Errorf("finalize the invoices of app %s that are due: %w", b.app.Name, err))
		}
	}
	return errors.Join(errs...)
}

// finalizeDraftsUntil makes the drafts of an app final whose months ended at before (Unix microseconds) or earlier. terms
// say which months those are; each invoice reads them again.
func (s *Service) finalizeDraftsUntil(ctx context.Context, terms price.Terms, app tenancy.App, state ledger.Billed, before int64) error {
	for {
		due, found, err := newUsageCounter(queryOutside(s.db.Platform()), terms, app, state, time.UnixMicro(before).UTC()).nextSpan(ctx)
		if err != nil || !found || due.end > before {
			return err
		}
		err = s.ledger.Update(ctx, app, func(l *ledger.Tx) error {
			// If the state differs, another process has made a draft final since it was read: continue from the new
			// state.
			if l.Billed == state {
				// A month is closed also where calls on it have no price: the next ones wait for it.
				inv, err := s.finalizeFirstDraft(ctx, l, audit.System, app, due.month, FinalizeOptions{AllowUnpriced: true})
				if err != nil {
					return err
				}
				if inv.UnpricedCalls > 0 {
					s.log.WarnContext(ctx, "an invoice became final with calls that have no price or are charged in part", "app", app.Name, "invoice", inv.ID, "calls", inv.UnpricedCalls)
				}
			}
			state = l.Billed
			return nil
		})
		if err != nil {
			return err
		}
	}
}
