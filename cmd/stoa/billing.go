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

type billingCmd struct {
	Check billingCheckCmd `cmd:"" help:"Work out the balances of all budgets from what was used, and show those that were wrong."`
}

type billingCheckCmd struct {
	Database string `default:"sqlite://stoa.db" env:"STOA_DATABASE" placeholder:"URL" help:"The database: sqlite://PATH or postgres://... (${default})."`
	JSON     bool   `name:"json" help:"Print JSON."`
}

// Run puts right the balances of budgets in the windows under way. It may run beside a server on PostgreSQL. It fails if
// any was wrong.
func (cmd *billingCheckCmd) Run(ctx context.Context, c *console) error {
	d, err := db.Open(ctx, cmd.Database, db.Options{MaxConns: 2, ResponseTimeout: time.Hour})
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
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

// billingSettings stand in the environment as STOA_INVOICE_ and their names.
type billingSettings struct {
	Grace string `default:"72h"`
}

const graceOff = "off"

// parseGrace is how long after the end of its month a draft becomes final by itself, 0 = it never does.
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

// openBilling brings up what counts the apps' usage and bounds it.
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

// usageFlushTimeout bounds how long a process that ends waits for the database to take usage.
const usageFlushTimeout = 5 * time.Second

// flushUsage writes the usage that waits for the database before the process ends.
func (h *server) flushUsage() error {
	ctx, cancel := context.WithTimeout(context.Background(), usageFlushTimeout)
	defer cancel()
	err := h.deps.Billing.WritePending(ctx)
	if n, _ := h.deps.Billing.PendingUsage(); n > 0 {
		return fmt.Errorf("%d rows of usage are lost, which waited for the database: %w", n, err)
	}
	return nil
}

// newPlanCheck refuses the name of a plan that does not exist.
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
