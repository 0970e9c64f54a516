package billing

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// UsageRequest is a model call that is about to be made. Input is at least as many tokens as it sends, Output the most that it may
// be answered with; Least is how many are still of use.
type UsageRequest struct {
	Call      string
	Task      agentsvc.TaskID
	Epoch     int64
	Agent     string
	Owner     agentsvc.Owner
	Provider  string
	Model     string
	Input     int64
	Output    int64
	MinOutput int64
}

// Reservation is what a call may use of every budget that applies to it, until it is settled. Output is how many tokens
// the call may be answered with: less than was asked for where the budgets have no more.
type Reservation struct {
	Output int64
	Began  time.Time // when the call began for the budgets: its usage must say the same

	gate     *BudgetGate
	request  UsageRequest
	currency string // that the call is charged in
	lines    []reservationLine
}

// Of waiting for calls under way to give back what they do not use.
const (
	minRetryWait = 20 * time.Millisecond
	maxRetryWait = 500 * time.Millisecond
)

// ReserveUsage takes what a call can cost at most from every budget that applies to it, or from none. Where hard budgets have
// less left, the call is bounded to that, as long as it is of use; where only calls under way are in the way it waits for
// them a while. Then it returns an [*agentsvc.BudgetExhaustedError]. The reservation lapses unless this process, in
// [Service.Run], keeps it until it is settled. Without a budget that applies it is nil.
func (a *BudgetGate) ReserveUsage(ctx context.Context, request UsageRequest) (*Reservation, error) {
	if !a.HasBudgets() {
		return nil, nil //nolint:nilnil // there is nothing to settle
	}
	currency := a.chargeCurrency()
	budgets, foreign := a.applicableBudgets(currency, request.Agent, request.Owner, request.Provider, request.Model)
	if err := a.checkForeignBudgets(currency, budgets, foreign); err != nil {
		return nil, err
	}
	if len(budgets) == 0 {
		return nil, nil //nolint:nilnil // as above
	}
	request.MinOutput = min(request.MinOutput, request.Output)
	r := &Reservation{gate: a, request: request, currency: currency, Output: request.Output}
	began, wait := time.Now(), minRetryWait
	for {
		r.Began = a.service.databaseNow()
		bounds, err := a.costBounds(budgets, request, r.Began)
		if err != nil {
			return nil, err
		}
		left, done, err := r.tryReserve(ctx, bounds)
		if err != nil || done {
			return r, err
		}
		now, later := maxOutputWithin(bounds, left, request, Balance.Remaining), maxOutputWithin(bounds, left, request, Balance.remainingUncommitted)
		switch {
		case now >= request.MinOutput:
			r.Output = min(now, r.Output)
			continue
		case later < request.MinOutput || time.Since(began) > a.service.maxWait:
			return nil, longestExhausted(bounds, left, request)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
			wait = min(2*wait, maxRetryWait)
			r.Output = request.Output
		}
	}
}

// remainingUncommitted is what would be left if no call were under way.
func (b Balance) remainingUncommitted() int64 { return max(0, subtractCapped(b.Amount, b.Committed)) }

// costBounds returns what a call can cost at most, for each budget. A hard budget of money refuses what has no price.
func (a *BudgetGate) costBounds(budgets []Budget, request UsageRequest, at time.Time) ([]costBound, error) {
	list := make([]costBound, 0, len(budgets))
	for _, b := range budgets {
		x := costBound{budget: b}
		x.since, x.until = b.Window.Bounds(at, b.location)
		switch b.Unit {
		case InCalls:
			x.amountFor = func(int64) int64 { return 1 }
		case InTokens:
			x.amountFor = func(output int64) int64 { return addCapped(request.Input, output) }
		case InMoney:
			book := a.service.priceBook.Load()
			if _, priced := book.maxCharge(b.Currency, request.Provider, request.Model, 1, 1, at); !priced && b.Hard {
				return nil, agentsvc.NewInvalidError("", "the model %s/%s has no price, and the budget %s is in money: the operator must add one to the price book",
					request.Provider, request.Model, b.Name)
			}
			x.amountFor = func(output int64) int64 {
				most, _ := book.maxCharge(b.Currency, request.Provider, request.Model, request.Input, output, at)
				return int64(most)
			}
		}
		list = append(list, x)
	}
	return list, nil
}

// maxOutputWithin returns the most tokens that a call may be answered with where each hard budget has so much left, -1 where there
// is not even room for an empty answer.
func maxOutputWithin(bounds []costBound, left []Balance, request UsageRequest, available func(Balance) int64) int64 {
	return int64(sort.Search(int(request.Output)+1, func(output int) bool {
		for i, x := range bounds {
			if left[i].Hard && x.amountFor(int64(output)) > available(left[i]) {
				return true
			}
		}
		return false
	})) - 1
}

// longestExhausted is the error about the hard budget that is in the way of the least useful answer; of several the one that lasts
// longest.
func longestExhausted(bounds []costBound, left []Balance, request UsageRequest) error {
	var found *agentsvc.BudgetExhaustedError
	for i, x := range bounds {
		if !left[i].Hard || x.amountFor(request.MinOutput) <= left[i].Remaining() {
			continue
		}
		err := left[i].exhaustedError()
		err.Needed = x.amountFor(request.MinOutput)
		if found == nil || err.ResetsAt.IsZero() || !found.ResetsAt.IsZero() && err.ResetsAt.After(found.ResetsAt) {
			found = err
		}
	}
	return found
}

// tryReserve writes the reservation, if every hard budget has room for it, and returns the balances before it.
func (r *Reservation) tryReserve(ctx context.Context, bounds []costBound) ([]Balance, bool, error) {
	tenant, call := string(r.gate.tenant), r.request.Call
	r.lines = make([]reservationLine, len(bounds))
	left := make([]Balance, len(bounds)) // whoever stops waiting leaves it to the writer
	b := db.Batch{Key: tenant}
	var over, rows []string
	args := []any{tenant, call}
	for i, x := range bounds {
		r.lines[i] = reservationLine{x.budget, x.since, x.until, x.amountFor(r.Output)}
		b.Exec(nil, `INSERT INTO budget_balance (tenant, budget, since, committed, reserved) VALUES ($1, $2, $3, 0, 0) ON CONFLICT DO NOTHING`,
			string(x.budget.App), x.budget.ID, x.since.UnixMicro())
	}
	for _, l := range r.lines {
		n := len(args)
		args = append(args, string(l.budget.App), l.budget.ID, l.since.UnixMicro(), l.amount)
		this := fmt.Sprintf("b.tenant = $%d AND b.budget = $%d AND b.since = $%d", n+1, n+2, n+3)
		// Of the sums of three none may leave 64 bits: each is compared before it is used.
		over = append(over, fmt.Sprintf(`(%s AND CASE WHEN b.committed > x.amount THEN TRUE WHEN b.reserved > x.amount - b.committed THEN TRUE
			ELSE CAST($%d AS BIGINT) > x.amount - b.committed - b.reserved END)`, this, n+4))
		rows = append(rows, fmt.Sprintf("(CAST($%d AS TEXT), CAST($%d AS TEXT), CAST($%d AS BIGINT), CAST($%d AS BIGINT))", n+1, n+2, n+3, n+4))
	}
	r.lockBalances(&b)
	for i, l := range r.lines {
		left[i] = Balance{Budget: l.budget, ResetsAt: l.until}
		b.Query(func(row db.Row) error {
			return row.Scan(&left[i].Committed, &left[i].Reserved, &left[i].Amount, &left[i].Hard)
		},
			`SELECT b.committed, b.reserved, x.amount, x.hard FROM budget_balance b JOIN budget x ON x.tenant = b.tenant AND x.id = b.budget
			WHERE b.tenant = $1 AND b.budget = $2 AND b.since = $3`, string(l.budget.App), l.budget.ID, l.since.UnixMicro())
	}
	var n int64
	holder := len(args)
	b.Exec(&n, `INSERT INTO reservation (tenant, call, task, epoch, holder, expires_at, settling)
		SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), `+fmt.Sprintf(`CAST($%d AS TEXT), CAST($%d AS BIGINT), CAST($%d AS TEXT), stoa_now() + CAST($%d AS BIGINT), FALSE`,
		holder+1, holder+2, holder+3, holder+4)+`
		WHERE NOT EXISTS (SELECT 1 FROM budget_balance b JOIN budget x ON x.tenant = b.tenant AND x.id = b.budget
			WHERE x.hard AND (`+strings.Join(over, " OR ")+`))`,
		append(args[:holder:holder], string(r.request.Task), r.request.Epoch, r.gate.service.processID, reservationExpiry.Microseconds())...)
	b.Exec(nil, `INSERT INTO reservation_line (tenant, call, owner, budget, since, amount)
		SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), v.column1, v.column2, v.column3, v.column4 FROM (VALUES `+strings.Join(rows, ", ")+`) AS v
		WHERE EXISTS (SELECT 1 FROM reservation WHERE tenant = $1 AND call = $2)`, args...)
	for _, l := range r.lines {
		b.Exec(nil, `UPDATE budget_balance SET reserved = `+addCappedSQL("reserved", "$4")+` WHERE tenant = $1 AND budget = $2 AND since = $3
			AND EXISTS (SELECT 1 FROM reservation WHERE tenant = $5 AND call = $6)`,
			string(l.budget.App), l.budget.ID, l.since.UnixMicro(), l.amount, tenant, call)
	}
	r.gate.service.reservations.addCall(call)
	err := r.gate.service.db.Platform().Write(ctx, &b)
	if err != nil || n == 0 {
		r.gate.service.reservations.removeCall(call)
	}
	if err != nil {
		return nil, false, fmt.Errorf("reserve: %w", err)
	}
	return left, n > 0, nil
}

// lockBalances adds to b that nobody else changes the balances until it is committed. On SQLite nobody could.
func (r *Reservation) lockBalances(b *db.Batch) {
	if r.gate.service.db.Engine() != db.Postgres {
		return
	}
	for _, l := range r.lines {
		b.Exec(nil, `SELECT 1 FROM budget_balance WHERE tenant = $1 AND budget = $2 AND since = $3 FOR UPDATE`,
			string(l.budget.App), l.budget.ID, l.since.UnixMicro())
	}
}
