package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kelseyhightower/envconfig"

	"stoa/agentsvc"
	"stoa/agentsvc/duration"
	"stoa/billing"
	"stoa/tenancy/signal"
)

// billingSettings are settings of billing, from STOA_INVOICE_ and the field's name.
type billingSettings struct {
	Grace string `default:"72h"` // duration, or graceOff
}

// graceOff is the value of STOA_INVOICE_GRACE with which drafts become final only by an operator's call.
const graceOff = "off"

// parseGrace returns how long after the end of its month a draft invoice becomes final automatically, 0 for never.
func (s billingSettings) parseGrace() (time.Duration, error) {
	if s.Grace == graceOff {
		return 0, nil
	}
	d, err := duration.Parse(s.Grace)
	if err != nil || d < time.Hour {
		return 0, fmt.Errorf("STOA_INVOICE_GRACE must be a time of at least 1h, such as 72h, or %s", graceOff)
	}
	return d, nil
}

// openBilling opens the billing service. An app's model calls reserve the most that they can cost in every budget
// that applies, before the call, and settle the reservation with the usage row afterwards, in one transaction. The
// reservations of a process that died expire. The closer writes the usage rows that still wait in memory for the
// database.
func openBilling(ctx context.Context, o Options, s Storage, bus *signal.Bus, c *closers) (*billing.Service, error) {
	var invoices billingSettings
	if err := envconfig.Process("stoa_invoice", &invoices); err != nil {
		return nil, envError(err)
	}
	grace, err := invoices.parseGrace()
	if err != nil {
		return nil, err
	}
	b, err := billing.Open(ctx, s.DB, bus, billing.Options{FinalizeGrace: grace, Log: o.Log})
	if err != nil {
		return nil, err
	}
	c.add(func() error { return flushUsage(b) })
	return b, nil
}

// usageFlushTimeout bounds how long a stopping process waits for the database to accept usage.
const usageFlushTimeout = 5 * time.Second

// flushUsage writes the usage rows that wait in memory. It returns an error with the number of rows that are lost.
func flushUsage(b *billing.Service) error {
	ctx, cancel := context.WithTimeout(context.Background(), usageFlushTimeout)
	defer cancel()
	err := b.Usage.WritePending(ctx)
	if n, _ := b.Usage.PendingUsage(); n > 0 {
		return fmt.Errorf("%d rows of usage are lost, which waited for the database: %w", n, err)
	}
	return nil
}

// newPlanCheck returns the check of tenancy.Options.CheckPlan: an unknown plan is an error with [agentsvc.CodeInvalid].
// It is nil without billing (stoa validate), so that any name passes.
func newPlanCheck(b *billing.Service) func(ctx context.Context, name string) error {
	if b == nil {
		return nil
	}
	return func(ctx context.Context, name string) error {
		_, err := b.Prices.FindPlan(ctx, name)
		if errors.Is(err, agentsvc.CodeNotFound) {
			return agentsvc.NewInvalidError("plan", "there is no plan %.63q; GET /admin/plans lists them", name)
		}
		return err
	}
}
