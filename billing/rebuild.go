package billing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"stoa/tenancy/db"
)

// Difference is a balance that was not what usage rows and open reservations add up to.
type Difference struct {
	App           db.ID     `json:"app"` // its id, "" = the platform
	Budget        string    `json:"budget"`
	Since         time.Time `json:"since"`
	Committed     int64     `json:"committed"` // as it was
	Reserved      int64     `json:"reserved"`
	WantCommitted int64     `json:"want_committed"` // as the rows have it
	WantReserved  int64     `json:"want_reserved"`
}

// Rebuild works out the balance of a budget in a window from the usage rows and the open reservations. It returns what it had
// to change, nil for nothing.
func (s *Service) Rebuild(ctx context.Context, b Budget, since time.Time) (*Difference, error) {
	var d *Difference
	err := s.db.Platform().Tx(ctx, func(tx *db.Tx) (err error) {
		d, err = rebuild(ctx, tx, b, since)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("work out the balance of budget %s: %w", b.Name, err)
	}
	if d != nil {
		s.passed(ctx, Balance{Budget: b, Committed: d.WantCommitted}, since)
	}
	return d, nil
}

// RebuildAll works out the balances of all budgets in the windows under way, and returns those that were wrong.
func (s *Service) RebuildAll(ctx context.Context) ([]Difference, error) {
	if err := s.readBudgets(ctx); err != nil {
		return nil, err
	}
	return s.rebuildSome(ctx, func(Budget) bool { return true })
}

func (s *Service) rebuildSome(ctx context.Context, which func(Budget) bool) ([]Difference, error) {
	var wrong []Difference
	var errs []error
	for _, list := range s.budgets.all() {
		for _, b := range list {
			if !which(b) {
				continue
			}
			since, _ := b.Window.Bounds(s.now(), b.zone)
			d, err := s.Rebuild(ctx, b, since)
			errs = append(errs, err)
			if d != nil {
				wrong = append(wrong, *d)
			}
		}
	}
	return wrong, errors.Join(errs...)
}

// rebuild does so in tx. The balance is locked first: whoever settles a call writes its usage row and the balance
// together, so both are seen or neither is.
func rebuild(ctx context.Context, tx *db.Tx, b Budget, since time.Time) (*Difference, error) {
	key := []any{string(b.App), b.ID, since.UnixMicro()}
	_, err := tx.Exec(ctx, `INSERT INTO budget_balance (tenant, budget, since, committed, reserved) VALUES ($1, $2, $3, 0, 0)
		ON CONFLICT (tenant, budget, since) DO UPDATE SET reserved = budget_balance.reserved`, key...)
	if err != nil {
		return nil, err
	}
	d := Difference{App: b.App, Budget: b.Name, Since: since}
	err = tx.Query(ctx, func(r db.Row) error { return r.Scan(&d.Committed, &d.Reserved) },
		`SELECT committed, reserved FROM budget_balance WHERE tenant = $1 AND budget = $2 AND since = $3`, key...)
	if err != nil {
		return nil, err
	}
	if d.WantCommitted, err = committed(ctx, tx, b, since); err != nil {
		return nil, err
	}
	err = tx.Query(ctx, func(r db.Row) error { return r.Scan(&d.WantReserved) },
		`SELECT `+sumOrNone("amount")+` FROM reservation_line WHERE owner = $1 AND budget = $2 AND since = $3`, key...)
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

// committed adds up what b counts in a window: usage rows, and for the platform what apps that are gone had used.
func committed(ctx context.Context, tx *db.Tx, b Budget, since time.Time) (total int64, err error) {
	if total, err = usedOf(ctx, tx, b, b.App, since); err != nil || b.App != "" {
		return total, err
	}
	err = tx.Query(ctx, func(r db.Row) error {
		var gone int64
		err := r.Scan(&gone)
		total = more(total, gone)
		return err
	}, `SELECT `+sumOrNone("amount")+` FROM budget_gone WHERE budget = $1 AND since = $2`, b.ID, since.UnixMicro())
	return total, err
}

// usedOf adds up the usage rows that b counts in a window: those of an app, or of all that are not gone where it is "". That
// of a call whose reservation is open is not one yet: its settlement will count it.
func usedOf(ctx context.Context, tx *db.Tx, b Budget, app db.ID, since time.Time) (total int64, err error) {
	_, until := b.Window.Bounds(since, b.zone)
	if until.IsZero() {
		until = time.UnixMicro(1 << 62)
	}
	where := `tenant || '' = $1 AND `
	args := []any{string(app), since.UnixMicro(), until.UnixMicro(), b.Scope.Agent, b.Scope.Key, b.Scope.User, string(b.App), b.ID}
	if app == "" {
		where = `CAST($1 AS TEXT) = '' AND NOT EXISTS (SELECT 1 FROM budget_gone g WHERE g.budget = $8 AND g.since = $2 AND g.app = usage.tenant) AND `
	}
	err = tx.Query(ctx, func(row db.Row) error {
		u := Usage{Kind: ModelCall}
		if err := row.Scan(&u.Provider, &u.Model, &u.Currency, &u.InputTokens, &u.OutputTokens, &u.ModelCalls, (*int64)(&u.Charge)); err != nil {
			return err
		}
		if b.Scope.takes(u.Provider, u.Model) {
			total = more(total, b.counts(u))
		}
		return nil
	}, `SELECT provider, model, currency, `+sums("input_tokens", "output_tokens", "model_calls", "charge")+`
		FROM usage WHERE `+where+`at >= $2 AND at < $3 AND kind = 'model' AND (CAST($4 AS TEXT) = '' OR agent = $4)
			AND (CAST($5 AS TEXT) = '' OR key_id = $5) AND (CAST($6 AS TEXT) = '' OR owner_sub = $6)
			AND NOT EXISTS (SELECT 1 FROM reservation_line l WHERE l.tenant = usage.tenant AND l.call = usage.key AND l.owner = $7 AND l.budget = $8)
		GROUP BY provider, model, currency`, args...)
	return total, err
}
