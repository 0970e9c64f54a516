package budget

import (
	"context"
	"fmt"
	"strings"

	"stoa/tenancy/db"
)

// TightBudget is a budget with the part of it that is left in its current window.
type TightBudget struct {
	// App is the app's name, "" for a budget of the platform.
	App  string
	Name string
	// Remaining is from 0 to 1.
	Remaining float64
}

// ListTightest returns the budgets of all apps and of the platform with the smallest part left, at most n. Budgets that
// have not been used in their current window, and those with the amount 0, are not among them.
func ListTightest(ctx context.Context, s *Service, n int) (list []TightBudget, err error) {
	args := []any{n}
	var windows []string
	seen := map[string]bool{}
	for _, budgets := range s.budgets.allBudgets() {
		for _, x := range budgets {
			key := string(x.Window) + " " + x.Zone
			if seen[key] {
				continue
			}
			seen[key] = true
			since, _ := x.Window.Bounds(s.databaseNow(), x.location)
			i := len(args) + 1
			windows = append(windows, fmt.Sprintf("(CAST($%d AS TEXT), CAST($%d AS TEXT), CAST($%d AS BIGINT))", i, i+1, i+2))
			args = append(args, string(x.Window), x.Zone, since.UnixMicro())
		}
	}
	if len(windows) == 0 {
		return nil, nil
	}
	var b db.Batch
	b.Query(func(r db.Row) error {
		var x TightBudget
		var amount, committed, reserved int64
		err := r.Scan(&x.App, &x.Name, &amount, &committed, &reserved)
		x.Remaining = float64(Balance{Budget: Budget{Amount: amount}, Committed: committed, Reserved: reserved}.Remaining()) / float64(amount)
		list = append(list, x)
		return err
	}, `SELECT COALESCE(a.name, x.tenant), x.name, x.amount, b.committed, b.reserved FROM budget_balance b
		JOIN budget x ON x.tenant = b.tenant AND x.id = b.budget LEFT JOIN app a ON a.tenant = x.tenant
		WHERE x.amount > 0 AND (b.committed > 0 OR b.reserved > 0) AND (x.span, x.timezone, b.since) IN (VALUES `+strings.Join(windows, ", ")+`)
		ORDER BY (CAST(b.committed AS DOUBLE PRECISION) + CAST(b.reserved AS DOUBLE PRECISION)) / x.amount DESC, x.tenant, x.name LIMIT CAST($1 AS BIGINT)`, args...)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read the tightest budgets: %w", err)
	}
	return list, nil
}
