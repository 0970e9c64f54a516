package budget

import (
	"context"
	"fmt"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/billing/usage"
	"stoa/tenancy/db"
)

// SettleReservation replaces what was reserved for the call by what it used, and writes its usage row, in one
// transaction. The charge is in the currency of the reservation. If the reservation has expired meanwhile, the balances
// are computed again from the usage rows. used.Call must be the request's, used.StartedAt the reservation's Began.
//
// If the database does not respond, the row is queued ([usage.Service.WritePending]) and the error is returned as well.
func (r *CostReservation) SettleReservation(ctx context.Context, m *usage.Meter, used agentsvc.Usage) error {
	return r.closeReservation(ctx, m.RowsOf(r.currency, r.request.runFacts(used)))
}

// ReleaseReservation returns the reserved amount: the call was not made, or used nothing.
func (r *CostReservation) ReleaseReservation(ctx context.Context) error {
	return r.closeReservation(ctx, nil)
}

// closeReservation ends the reservation: it is settled or, without rows, released. rows holds the usage row of the
// call, or nothing.
func (r *CostReservation) closeReservation(ctx context.Context, rows []usage.Row) error {
	s, tenant, call := r.gate.service, string(r.gate.tenant), r.request.Call
	defer s.reservations.removeCall(call)
	b := db.Batch{Key: tenant}
	var n int64
	// This update locks the reservation against expireBatch: either side sees whether the other has ended it. n is 0 if
	// it is gone.
	b.Exec(&n, `UPDATE reservation SET settling = TRUE WHERE tenant = $1 AND call = $2`, tenant, call)
	after := make([]Balance, len(r.lines))
	for i, l := range r.lines {
		after[i] = Balance{Budget: l.budget}
		// committed and reserved change together and only while the reservation exists, so the amount is never returned
		// twice.
		b.Exec(nil, `UPDATE budget_balance SET committed = `+amount.AddSQL("committed", "$4")+`, reserved = reserved - $5 WHERE tenant = $1 AND budget = $2 AND since = $3
			AND EXISTS (SELECT 1 FROM reservation WHERE tenant = $6 AND call = $7)`,
			string(l.budget.App), l.budget.ID, l.since.UnixMicro(), l.budget.usageAmount(rows...), l.amount, tenant, call)
	}
	b.Exec(nil, `DELETE FROM reservation_line WHERE tenant = $1 AND call = $2`, tenant, call)
	b.Exec(nil, `DELETE FROM reservation WHERE tenant = $1 AND call = $2`, tenant, call)
	// The usage row is in the same transaction: rebuildBalanceTx, which locks the balance first, sees both or neither.
	usage.InsertRows(&b, r.gate.tenant, rows)
	for i, l := range r.lines {
		b.Query(func(row db.Row) error { return row.Scan(&after[i].Committed, &after[i].Amount) },
			`SELECT b.committed, x.amount FROM budget_balance b JOIN budget x ON x.tenant = b.tenant AND x.id = b.budget
			WHERE b.tenant = $1 AND b.budget = $2 AND b.since = $3`, string(l.budget.App), l.budget.ID, l.since.UnixMicro())
	}
	if err := s.db.Platform().Write(ctx, &b); err != nil {
		if len(rows) > 0 && !db.IsRejected(err) {
			// The reservation expires, and its balances are then computed with the queued row.
			s.usage.QueueRows(r.gate.tenant, rows)
		}
		return fmt.Errorf("settle: %w", err)
	}
	for i, l := range r.lines {
		if n == 0 {
			// The reservation had expired, or its app was deleted. The usage row is written, so the sum of all rows is
			// right.
			if _, err := s.rebuildBalance(ctx, l.budget, l.since); err != nil {
				return err
			}
			continue
		}
		s.recordPassedThresholds(ctx, after[i], l.since)
	}
	if len(rows) == 0 {
		return nil
	}
	// A budget that was created during the call has no line in the reservation, and counts the call as well.
	return r.gate.recountUnreserved(ctx, r.request, r.lines, r.Began)
}

// usageAmount returns how much of b the rows use, in the budget's unit. A charge in another currency counts nothing.
func (b Budget) usageAmount(rows ...usage.Row) (n int64) {
	for _, u := range rows {
		switch {
		case u.Kind != amount.ModelCall && u.Kind != amount.Embedding:
		case b.Unit == InTokens:
			n = amount.Add(n, u.Tokens())
		case b.Unit == InCalls:
			n = amount.Add(n, u.ModelCalls)
		case u.Currency == b.Currency:
			n = amount.Add(n, int64(u.Charge))
		}
	}
	return n
}
