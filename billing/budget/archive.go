package budget

import (
	"cmp"
	"context"
	"slices"

	"stoa/billing/change"
	"stoa/tenancy/db"
)

// ArchiveUsage records what an app that is about to be deleted has used of the platform's budgets (table budget_gone)
// and ends its reservations. The app's usage rows are deleted with it, and the platform's balances must still count
// them. It may be repeated.
func (s *Service) ArchiveUsage(ctx context.Context, app db.ID) error {
	if err := s.readBudgets(ctx, ""); err != nil {
		return err
	}
	return s.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
		if err := change.Forget(ctx, tx, change.Budget, string(app)); err != nil {
			return err
		}
		for _, table := range []string{"reservation", "reservation_line"} {
			if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE tenant = $1`, string(app)); err != nil {
				return err
			}
		}
		// By id, the order in which all transactions lock balances.
		for _, b := range slices.SortedFunc(slices.Values(s.budgets.budgetsOf("")), func(x, y Budget) int { return cmp.Compare(x.ID, y.ID) }) {
			since, _ := b.Window.Bounds(s.databaseNow(), b.location)
			used, err := sumBudgetUsage(ctx, tx, b, app, since)
			if err != nil {
				return err
			}
			// A repetition may find fewer rows, since their deletion has begun: the larger amount stays.
			_, err = tx.Exec(ctx, `INSERT INTO budget_gone (budget, since, app, amount) VALUES ($1, $2, $3, $4)
				ON CONFLICT (budget, since, app) DO UPDATE SET amount = excluded.amount WHERE excluded.amount > budget_gone.amount`,
				b.ID, since.UnixMicro(), string(app), used)
			if err != nil {
				return err
			}
			if _, err := rebuildBalanceTx(ctx, tx, b, since); err != nil {
				return err
			}
		}
		return nil
	})
}
