package budget

import (
	"context"
	"fmt"

	"stoa/billing/amount"
	"stoa/tenancy/db"
)

// CountFlaws returns how many balances, of all budgets and windows, are negative or reserve something else than their open
// reservations do. While an expired reservation is being ended its balance counts too, for a moment. It does not compare
// with the usage rows, as [Service.RebuildBalances] does: that takes long.
func CountFlaws(ctx context.Context, d *db.DB) (n int64, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, `SELECT COUNT(*) FROM budget_balance b LEFT JOIN (
			SELECT owner, budget, since, `+amount.SumOrZeroSQL("amount")+` AS reserved FROM reservation_line GROUP BY owner, budget, since
		) l ON l.owner = b.tenant AND l.budget = b.budget AND l.since = b.since
		WHERE b.committed < 0 OR b.reserved < 0 OR b.reserved <> COALESCE(l.reserved, 0)`)
	if err := d.Platform().Do(ctx, &b); err != nil {
		return 0, fmt.Errorf("count wrong balances of budgets: %w", err)
	}
	return n, nil
}
