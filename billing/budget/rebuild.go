package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"stoa/billing/amount"
	"stoa/billing/price"
	"stoa/billing/usage"
	"stoa/tenancy/db"
)

// BalanceDifference is a balance that differed from the sum of its usage rows and open reservations.
type BalanceDifference struct {
	// App is the app's id, "" for the platform.
	App      db.ID
	Budget   string
	Unit     Unit
	Currency string // of a budget in money
	Since    time.Time
	// Committed and Reserved are what the balance was, in the budget's unit.
	Committed int64
	Reserved  int64
	// WantCommitted and WantReserved are what the rows sum to, which the balance is now.
	WantCommitted int64
	WantReserved  int64
}

// rebuildBalance computes the balance of a budget in the window that begins at since from the usage rows and the open
// reservations. It returns the difference it corrected, nil for none, and records thresholds that the corrected balance
// has reached.
func (s *Service) rebuildBalance(ctx context.Context, b Budget, since time.Time) (*BalanceDifference, error) {
	var d *BalanceDifference
	err := s.db.Platform().RunTx(ctx, func(tx *db.Tx) (err error) {
		d, err = rebuildBalanceTx(ctx, tx, b, since)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("compute the balance of budget %s: %w", b.Name, err)
	}
	if d != nil {
		s.recordPassedThresholds(ctx, Balance{Budget: b, Committed: d.WantCommitted}, since)
	}
	return d, nil
}

// RebuildBalances computes the balances of the budgets of some apps, "" for the platform's, or without any of all budgets, in
// their current windows, and returns those that were wrong.
func (s *Service) RebuildBalances(ctx context.Context, apps ...db.ID) ([]BalanceDifference, error) {
	if err := s.readBudgets(ctx, apps...); err != nil {
		return nil, err
	}
	return s.rebuildMatching(ctx, func(b Budget) bool { return len(apps) == 0 || slices.Contains(apps, b.App) })
}

// rebuildMatching calls rebuildBalance for the current window of each cached budget for which the function returns
// true. An error does not stop it.
func (s *Service) rebuildMatching(ctx context.Context, which func(Budget) bool) ([]BalanceDifference, error) {
	var wrong []BalanceDifference
	var errs []error
	for _, list := range s.budgets.allBudgets() {
		for _, b := range list {
			if !which(b) {
				continue
			}
			since, _ := b.Window.Bounds(s.databaseNow(), b.location)
			d, err := s.rebuildBalance(ctx, b, since)
			errs = append(errs, err)
			if d != nil {
				wrong = append(wrong, *d)
			}
		}
	}
	return wrong, errors.Join(errs...)
}

// rebuildBalanceTx is rebuildBalance within tx. The insert creates the balance if it is missing and otherwise locks its
// row by an update that changes nothing. A settlement, which writes its usage row and the balance in one transaction,
// is therefore seen as a whole or not at all.
func rebuildBalanceTx(ctx context.Context, tx *db.Tx, b Budget, since time.Time) (*BalanceDifference, error) {
	key := []any{string(b.App), b.ID, since.UnixMicro()}
	_, err := tx.Exec(ctx, `INSERT INTO budget_balance (tenant, budget, since, committed, reserved) VALUES ($1, $2, $3, 0, 0)
		ON CONFLICT (tenant, budget, since) DO UPDATE SET reserved = budget_balance.reserved`, key...)
	if err != nil {
		return nil, err
	}
	d := BalanceDifference{App: b.App, Budget: b.Name, Unit: b.Unit, Currency: b.Currency, Since: since}
	err = tx.Query(ctx, func(r db.Row) error { return r.Scan(&d.Committed, &d.Reserved) },
		`SELECT committed, reserved FROM budget_balance WHERE tenant = $1 AND budget = $2 AND since = $3`, key...)
	if err != nil {
		return nil, err
	}
	if d.WantCommitted, err = sumCommitted(ctx, tx, b, since); err != nil {
		return nil, err
	}
	err = tx.Query(ctx, func(r db.Row) error { return r.Scan(&d.WantReserved) },
		`SELECT `+amount.SumOrZeroSQL("amount")+` FROM reservation_line WHERE owner = $1 AND budget = $2 AND since = $3`, key...)
	if err != nil {
		return nil, err
	}
	if d.Committed == d.WantCommitted && d.Reserved == d.WantReserved {
		return nil, nil //nolint:nilnil // nothing was wrong
	}
	_, err = tx.Exec(ctx, `UPDATE budget_balance SET committed = $4, reserved = $5 WHERE tenant = $1 AND budget = $2 AND since = $3`,
		append(key, d.WantCommitted, d.WantReserved)...)
	return &d, err
}

// sumCommitted returns what b counts in a window. For a budget of the platform that includes what deleted apps had used
// (ArchiveUsage).
func sumCommitted(ctx context.Context, tx *db.Tx, b Budget, since time.Time) (total int64, err error) {
	if total, err = sumBudgetUsage(ctx, tx, b, b.App, since); err != nil || b.App != "" {
		return total, err
	}
	err = tx.Query(ctx, func(r db.Row) error {
		var gone int64
		err := r.Scan(&gone)
		total = amount.Add(total, gone)
		return err
	}, `SELECT `+amount.SumOrZeroSQL("amount")+` FROM budget_gone WHERE budget = $1 AND since = $2`, b.ID, since.UnixMicro())
	return total, err
}

// sumBudgetUsage sums the usage rows that b counts in a window: those of an app or, where app is "", of all apps that
// are not deleted.
//
// A row whose reservation in b is still open does not count: the log's transaction may have written it before its
// settlement, which will add it to the balance. Model patterns are matched here rather than in SQL, over one row for
// each model and currency. The expression tenant || ” is that of the index usage_at: no index begins with the plain
// tenant column, see migration 0004.
func sumBudgetUsage(ctx context.Context, tx *db.Tx, b Budget, app db.ID, since time.Time) (total int64, err error) {
	_, until := b.Window.Bounds(since, b.location)
	// Total has no end: a time beyond all rows.
	if until.IsZero() {
		until = time.UnixMicro(1 << 62)
	}
	where := `tenant || '' = $1 AND `
	args := []any{string(app), since.UnixMicro(), until.UnixMicro(), b.Scope.Agent, b.Scope.Key, b.Scope.User, string(b.App), b.ID}
	if app == "" {
		where = `CAST($1 AS TEXT) = '' AND NOT EXISTS (SELECT 1 FROM budget_gone g WHERE g.budget = $8 AND g.since = $2 AND g.app = usage.tenant) AND `
	}
	err = tx.Query(ctx, func(row db.Row) error {
		u := usage.Row{Usage: price.Usage{Kind: amount.ModelCall}}
		if err := row.Scan(&u.Provider, &u.Model, &u.Currency, &u.InputTokens, &u.OutputTokens, &u.ModelCalls, &u.EmbeddingTokens, (*int64)(&u.Charge)); err != nil {
			return err
		}
		if b.Scope.coversModel(u.Provider, u.Model) {
			total = amount.Add(total, b.usageAmount(u))
		}
		return nil
	}, `SELECT provider, model, currency, `+amount.SumsSQL("input_tokens", "output_tokens", "model_calls", "embedding_tokens", "charge")+`
		FROM usage WHERE `+where+`at >= $2 AND at < $3 AND kind IN ('model', 'embedding') AND (CAST($4 AS TEXT) = '' OR agent = $4)
			AND (CAST($5 AS TEXT) = '' OR key_id = $5) AND (CAST($6 AS TEXT) = '' OR owner_sub = $6)
			AND NOT EXISTS (SELECT 1 FROM reservation_line l WHERE l.tenant = usage.tenant AND l.call = usage.key AND l.owner = $7 AND l.budget = $8)
		GROUP BY provider, model, currency`, args...)
	return total, err
}
