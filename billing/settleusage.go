package billing

import (
	"context"
	"fmt"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// SettleUsage puts what the call has used in the place of what was reserved for it, and writes its usage row, in one
// transaction, in the currency that the app was charged in when it was reserved. A reservation that has lapsed meanwhile is
// made up for. used must name the call and say that it began when the reservation says.
func (r *Reservation) SettleUsage(ctx context.Context, m *Meter, used agentsvc.Usage) error {
	return r.closeReservation(ctx, m.usageRows(r.currency, r.request.runFacts(used)))
}

// ReleaseUsage gives back what was reserved: the call was not made, or used nothing.
func (r *Reservation) ReleaseUsage(ctx context.Context) error { return r.closeReservation(ctx, nil) }

// closeReservation closes the reservation with the usage row of its call, if it used anything.
func (r *Reservation) closeReservation(ctx context.Context, rows []Usage) error {
	s, tenant, call := r.gate.service, string(r.gate.tenant), r.request.Call
	defer s.reservations.removeCall(call)
	b := db.Batch{Key: tenant}
	var n int64
	b.Exec(&n, `UPDATE reservation SET settling = TRUE WHERE tenant = $1 AND call = $2`, tenant, call)
	after := make([]Balance, len(r.lines))
	for i, l := range r.lines {
		after[i] = Balance{Budget: l.budget}
		b.Exec(nil, `UPDATE budget_balance SET committed = `+addCappedSQL("committed", "$4")+`, reserved = reserved - $5 WHERE tenant = $1 AND budget = $2 AND since = $3
			AND EXISTS (SELECT 1 FROM reservation WHERE tenant = $6 AND call = $7)`,
			string(l.budget.App), l.budget.ID, l.since.UnixMicro(), l.budget.usageAmount(rows...), l.amount, tenant, call)
	}
	b.Exec(nil, `DELETE FROM reservation_line WHERE tenant = $1 AND call = $2`, tenant, call)
	b.Exec(nil, `DELETE FROM reservation WHERE tenant = $1 AND call = $2`, tenant, call)
	insertUsage(&b, r.gate.tenant, rows)
	for i, l := range r.lines {
		b.Query(func(row db.Row) error { return row.Scan(&after[i].Committed, &after[i].Amount) },
			`SELECT b.committed, x.amount FROM budget_balance b JOIN budget x ON x.tenant = b.tenant AND x.id = b.budget
			WHERE b.tenant = $1 AND b.budget = $2 AND b.since = $3`, string(l.budget.App), l.budget.ID, l.since.UnixMicro())
	}
	if err := s.db.Platform().Write(ctx, &b); err != nil {
		if len(rows) > 0 && !db.IsRejected(err) {
			s.queueUsage(r.gate.tenant, rows) // the reservation lapses, and the row counts in its place
		}
		return fmt.Errorf("settle: %w", err)
	}
	for i, l := range r.lines {
		if n == 0 {
			// It had lapsed, or its app is gone. The row is there, so that the sum of all rows is right.
			if _, err := s.RebuildBalance(ctx, l.budget, l.since); err != nil {
				return err
			}
			continue
		}
		s.recordPassedThresholds(ctx, after[i], l.since)
	}
	if len(rows) == 0 {
		return nil
	}
	return r.gate.recountUnreserved(ctx, r.request, r.lines, r.Began)
}

// usageAmount returns how much of b rows use up.
func (b Budget) usageAmount(rows ...Usage) (n int64) {
	for _, u := range rows {
		switch {
		case u.Kind != ModelCall:
		case b.Unit == InTokens:
			n = addCapped(n, u.Tokens())
		case b.Unit == InCalls:
			n = addCapped(n, u.ModelCalls)
		case u.Currency == b.Currency:
			n = addCapped(n, int64(u.Charge))
		}
	}
	return n
}
