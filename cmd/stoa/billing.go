package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kelseyhightower/envconfig"

	"stoa/billing"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// billingCmd is `stoa billing`.
type billingCmd struct {
	Check billingCheckCmd `cmd:"" help:"Compute the balances of all budgets from the usage, and show those that were wrong."`
}

// billingCheckCmd is `stoa billing check`. It opens the database directly and needs no server.
type billingCheckCmd struct {
	Database string `default:"sqlite://stoa.db" env:"STOA_DATABASE" placeholder:"URL" help:"The database: sqlite://PATH or postgres://... (${default})."`
	JSON     bool   `name:"json" help:"Print JSON."`
}

// Run recomputes the balances of all budgets in their present windows from the usage and the reservations in the
// database, corrects those that are wrong and prints them. It returns an error if any was wrong. On PostgreSQL it may
// run while servers do.
func (cmd *billingCheckCmd) Run(ctx context.Context, c *console) error {
	// Summing the usage of all apps may take long: the default timeout of 30 s for an answer would break it off.
	d, err := db.Open(ctx, cmd.Database, db.Options{MaxConns: 2, ResponseTimeout: time.Hour})
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	// Without a bus: the servers read the corrected balances from the database.
	b, err := billing.Open(ctx, d, nil, billing.Options{})
	if err != nil {
		return err
	}
	wrong, err := b.RebuildBalances(ctx)
	if err != nil {
		return err
	}
	if cmd.JSON {
		if err := c.printJSON(append([]billing.BalanceDifference{}, wrong...)); err != nil {
			return err
		}
	}
	for _, w := range wrong {
		if !cmd.JSON {
			c.printStatus("budget %s of app %q since %s: committed %d, now %d; reserved %d, now %d", w.Budget, w.App, w.Since.Format(time.RFC3339),
				w.Committed, w.WantCommitted, w.Reserved, w.WantReserved)
		}
	}
	switch {
	case len(wrong) > 0:
		return &exitError{code: exitFailed}
	case !cmd.JSON:
		_, err = fmt.Fprintln(c.out, "all balances are what was used")
	}
	return err
}

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
	d, err := time.ParseDuration(s.Grace)
	if err != nil || d < time.Hour {
		return 0, fmt.Errorf("STOA_INVOICE_GRACE must be a time of at least 1h, such as 72h, or %s", graceOff)
	}
	return d, nil
}

// openBilling opens the billing service. An app's model calls reserve the most that they can cost in every budget
// that applies, before the call, and settle the reservation with the usage row afterwards, in one transaction. The
// reservations of a process that died expire. The closer writes the usage rows that still wait in memory for the
// database.
func (h *server) openBilling(ctx context.Context) error {
	var s billingSettings
	if err := envconfig.Process("stoa_invoice", &s); err != nil {
		return envError(err)
	}
	grace, err := s.parseGrace()
	if err != nil {
		return err
	}
	if h.deps.Billing, err = billing.Open(ctx, h.db, h.bus, billing.Options{FinalizeGrace: grace, Log: h.log}); err == nil {
		h.addCloser(h.flushUsage)
	}
	return err
}

// usageFlushTimeout bounds how long a stopping process waits for the database to accept usage.
const usageFlushTimeout = 5 * time.Second

// flushUsage writes the usage rows that wait in memory. It returns an error with the number of rows that are lost.
func (h *server) flushUsage() error {
	ctx, cancel := context.WithTimeout(context.Background(), usageFlushTimeout)
	defer cancel()
	err := h.deps.Billing.WritePending(ctx)
	if n, _ := h.deps.Billing.PendingUsage(); n > 0 {
		return fmt.Errorf("%d rows of usage are lost, which waited for the database: %w", n, err)
	}
	return nil
}

// newPlanCheck returns the check of tenancy.Options.CheckPlan: an unknown plan is a [tenancy.InvalidError]. It is nil
// without billing (stoa validate), so that any name passes.
func newPlanCheck(b *billing.Service) func(ctx context.Context, name string) error {
	if b == nil {
		return nil
	}
	return func(ctx context.Context, name string) error {
		_, err := b.FindPlan(ctx, name)
		if errors.Is(err, billing.ErrNotFound) {
			return &tenancy.InvalidError{Field: "plan", Reason: fmt.Sprintf("there is no plan %.63q; GET /admin/plans lists them", name)}
		}
		return err
	}
}
