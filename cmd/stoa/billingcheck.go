package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"stoa/billing"
	"stoa/billing/budget"
	"stoa/tenancy/db"
)

// billingCheckCmd is `stoa billing check`. It opens the database directly and needs no server.
type billingCheckCmd struct {
	databaseFlag `embed:""`
	JSON         bool `name:"json" help:"Print JSON."`
}

// Run recomputes the balances of all budgets in their present windows from the usage and the reservations in the
// database, corrects those that are wrong and prints them. It returns an error if any was wrong. On PostgreSQL it may
// run while servers do.
func (cmd *billingCheckCmd) Run(ctx context.Context, c *console) error {
	// Summing the usage of all apps may take long: the default timeout of 30 s for an answer would break it off.
	url, err := cmd.findDatabase()
	if err != nil {
		return err
	}
	d, err := db.Open(ctx, url, db.Options{MaxConns: 2, ResponseTimeout: time.Hour})
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	// Without a bus: the servers read the corrected balances from the database.
	b, err := billing.Open(ctx, d, nil, billing.Options{})
	if err != nil {
		return err
	}
	wrong, err := b.Budgets.RebuildBalances(ctx)
	if err != nil {
		return err
	}
	if cmd.JSON {
		list := make([]balanceDifference, len(wrong))
		for i, w := range wrong {
			list[i] = newBalanceDifference(w)
		}
		if err := c.printJSON(list); err != nil {
			return err
		}
	}
	for _, w := range wrong {
		if !cmd.JSON {
			amount := func(n int64) string {
				return strings.TrimSpace(cmp.Or(w.Unit.FormatDecimal(n, w.Currency), strconv.FormatInt(n, 10)) + " " + w.Currency)
			}
			c.printStatus("budget %s of app %q since %s: committed %s, now %s; reserved %s, now %s", w.Budget, w.App, w.Since.Format(time.RFC3339),
				amount(w.Committed), amount(w.WantCommitted), amount(w.Reserved), amount(w.WantReserved))
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

// balanceDifference is a [budget.BalanceDifference] in the output of `stoa billing check --json`.
type balanceDifference struct {
	App           db.ID       `json:"app"` // the app's id, "" for the platform
	Budget        string      `json:"budget"`
	Unit          budget.Unit `json:"unit"`
	Currency      string      `json:"currency,omitempty"`
	Since         time.Time   `json:"since"`
	Committed     int64       `json:"committed"`
	Reserved      int64       `json:"reserved"`
	WantCommitted int64       `json:"want_committed"`
	WantReserved  int64       `json:"want_reserved"`
	// The same in whole units of the currency, only for budgets in money.
	CommittedDecimal     string `json:"committed_decimal,omitempty"`
	ReservedDecimal      string `json:"reserved_decimal,omitempty"`
	WantCommittedDecimal string `json:"want_committed_decimal,omitempty"`
	WantReservedDecimal  string `json:"want_reserved_decimal,omitempty"`
}

func newBalanceDifference(w budget.BalanceDifference) balanceDifference {
	decimal := func(n int64) string { return w.Unit.FormatDecimal(n, w.Currency) }
	return balanceDifference{
		w.App, w.Budget, w.Unit, w.Currency, w.Since, w.Committed, w.Reserved, w.WantCommitted, w.WantReserved,
		decimal(w.Committed), decimal(w.Reserved), decimal(w.WantCommitted), decimal(w.WantReserved),
	}
}
