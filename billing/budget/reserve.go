package budget

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/tenancy/db"
)

// Request describes a call of a model or an embedder that is about to be made.
type Request struct {
	// Call is the id of the call. It is the key of the reservation and of the usage row, so both are written at most
	// once.
	Call string
	Task agentsvc.TaskID
	// Epoch is the epoch of the lease under which the task runs.
	Epoch    int64
	Agent    string
	Owner    agentsvc.Owner
	Provider string
	Model    string
	// Input is an upper bound of the tokens that the call sends. Output is the most that the response may have,
	// MinOutput the least with which the response is still useful.
	Input     int64
	Output    int64
	MinOutput int64
	// Texts is the number of texts that an embedder turns into vectors, with Input tokens together; 0 for a call of a model.
	Texts int64
	// IsLocal means that the embedder runs in Stoa: it needs no price under a budget in money.
	IsLocal bool
}

// CostReservation is what a call has reserved in every budget that applies to it. Exactly one of
// [CostReservation.SettleReservation] and [CostReservation.ReleaseReservation] must follow.
type CostReservation struct {
	// Output is how many tokens the response may have: less than requested if the budgets have less left.
	Output int64
	// Began is the database's time at which the call began. It selects the windows, so the usage row must have the
	// same.
	Began time.Time

	// The fields below are set by ReserveBudget, then read-only.
	gate    *Gate
	request Request
	// currency is the one in which the call is charged. A plan that changes during the call does not change it.
	currency string
	lines    []reservationLine
}

// The pauses between attempts while concurrent calls hold what this one needs. Each pause is twice the one before.
const (
	minRetryWait = 20 * time.Millisecond
	maxRetryWait = 500 * time.Millisecond
)

// ReserveBudget reserves the most that a call can cost in every budget that applies to it, or in none. Without such a
// budget it returns nil and no error.
//
// If hard budgets have less left, the response is shortened to what they allow, down to request.MinOutput. If they have
// less only because of calls in progress, ReserveBudget waits for these up to [Options.MaxWait]: most use less than they
// reserved. After that it returns an error with the detail [*agentsvc.ExhaustedBudget].
//
// The reservation expires after reservationExpiry unless [Service.Run] of this process renews it.
func (g *Gate) ReserveBudget(ctx context.Context, request Request) (*CostReservation, error) {
	if !g.HasBudgets() {
		return nil, nil //nolint:nilnil // there is nothing to settle
	}
	currency := g.chargeCurrency()
	budgets, foreign := g.applicableBudgets(currency, request)
	if err := g.checkForeignBudgets(currency, budgets, foreign); err != nil {
		return nil, err
	}
	if len(budgets) == 0 {
		return nil, nil //nolint:nilnil // as above
	}
	request.MinOutput = min(request.MinOutput, request.Output)
	r := &CostReservation{gate: g, request: request, currency: currency, Output: request.Output}
	waitingSince, wait := time.Now(), minRetryWait
	for {
		// Each attempt takes a new time: a wait can cross the end of a window.
		r.Began = g.service.databaseNow()
		bounds, err := g.costBounds(budgets, request, r.Began)
		if err != nil {
			return nil, err
		}
		left, done, err := r.tryReserve(ctx, bounds)
		if err != nil || done {
			return r, err
		}
		// now is what the response can have at present, later what it could have if no other call were in progress.
		now, later := maxOutputWithin(bounds, left, request, Balance.Remaining), maxOutputWithin(bounds, left, request, Balance.remainingUncommitted)
		switch {
		case now >= request.MinOutput:
			// A shorter response fits. Another call may have taken the rest meanwhile, so this attempt can fail again.
			r.Output = min(now, r.Output)
			continue
		case later < request.MinOutput || time.Since(waitingSince) > g.service.maxWait:
			// Waiting cannot help, or has taken too long.
			return nil, longestExhausted(bounds, left, request)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
			wait = min(2*wait, maxRetryWait)
			// The calls in progress may have released enough for the full length.
			r.Output = request.Output
		}
	}
}

// remainingUncommitted returns what would be left if no call were in progress: reservations do not count, settled usage
// does.
func (b Balance) remainingUncommitted() int64 { return max(0, amount.Subtract(b.Amount, b.Committed)) }

// costBounds returns the upper bound of the call's cost for each budget, in its unit. A model without a price has no
// bound in money: if a hard money budget applies it is an error with [agentsvc.CodeInvalid].
func (g *Gate) costBounds(budgets []Budget, request Request, at time.Time) ([]costBound, error) {
	list := make([]costBound, 0, len(budgets))
	for _, b := range budgets {
		x := costBound{budget: b}
		x.since, x.until = b.Window.Bounds(at, b.location)
		switch b.Unit {
		case InCalls:
			x.amountFor = func(int64) int64 { return 1 }
		case InTokens:
			x.amountFor = func(output int64) int64 { return amount.Add(request.Input, output) }
		case InMoney:
			book := g.service.prices.CachedBook()
			if request.Texts > 0 {
				most, priced := book.MaxEmbeddingCharge(b.Currency, request.Provider, request.Model, request.Texts, at)
				if !priced && b.Hard && !request.IsLocal {
					return nil, agentsvc.NewInvalidError("", "the embedder %s/%s has no price, and the budget %s is in money: the operator must add one to the price book",
						request.Provider, request.Model, b.Name)
				}
				x.amountFor = func(int64) int64 { return int64(most) }
				break
			}
			if _, priced := book.MaxCharge(b.Currency, request.Provider, request.Model, 1, 1, at); !priced && b.Hard {
				return nil, agentsvc.NewInvalidError("", "the model %s/%s has no price, and the budget %s is in money: the operator must add one to the price book",
					request.Provider, request.Model, b.Name)
			}
			x.amountFor = func(output int64) int64 {
				most, _ := book.MaxCharge(b.Currency, request.Provider, request.Model, request.Input, output, at)
				return int64(most)
			}
		}
		list = append(list, x)
	}
	return list, nil
}

// maxOutputWithin returns the largest response, up to request.Output, that fits into what is available in each hard
// budget; -1 if not even an empty response fits. It searches by bisection: the inverse of the price function, with its
// rounding, has no simple form.
func maxOutputWithin(bounds []costBound, left []Balance, request Request, available func(Balance) int64) int64 {
	return int64(sort.Search(int(request.Output)+1, func(output int) bool {
		for i, x := range bounds {
			if left[i].Hard && x.amountFor(int64(output)) > available(left[i]) {
				return true
			}
		}
		return false
	})) - 1
}

// longestExhausted returns the error for a call whose shortest useful response does not fit. If several budgets are
// exhausted it names the one whose window ends last, since the call is not possible before. At least one must be
// exhausted.
func longestExhausted(bounds []costBound, left []Balance, request Request) error {
	var found *agentsvc.ExhaustedBudget
	for i, x := range bounds {
		if !left[i].Hard || x.amountFor(request.MinOutput) <= left[i].Remaining() {
			continue
		}
		one := left[i].exhausted()
		one.Needed = x.amountFor(request.MinOutput)
		if found == nil || one.ResetsAt.IsZero() || !found.ResetsAt.IsZero() && one.ResetsAt.After(found.ResetsAt) {
			found = one
		}
	}
	return found.NewError()
}

// tryReserve writes the reservation if every hard budget covers it, and returns the balances before it and whether it
// was written.
//
// It is one batch, so one round trip: create missing balance rows, lock the balances, read them, insert the reservation
// under the condition that all of it fits, and then the lines and the new balances under the condition that the
// reservation exists. The budgets' amounts and whether they are hard come from table budget, not from the cache, so a
// budget that was just lowered takes effect at once.
func (r *CostReservation) tryReserve(ctx context.Context, bounds []costBound) ([]Balance, bool, error) {
	tenant, call := string(r.gate.tenant), r.request.Call
	r.lines = make([]reservationLine, len(bounds))
	// left is new for each attempt; the queries below fill it.
	left := make([]Balance, len(bounds))
	b := db.Batch{Key: tenant}
	var over, rows []string
	args := []any{tenant, call}
	// The row of a window's first call does not exist yet. A concurrent insert of it is no conflict.
	for i, x := range bounds {
		r.lines[i] = reservationLine{x.budget, x.since, x.until, x.amountFor(r.Output)}
		b.Exec(nil, `INSERT INTO budget_balance (tenant, budget, since, committed, reserved) VALUES ($1, $2, $3, 0, 0) ON CONFLICT DO NOTHING`,
			string(x.budget.App), x.budget.ID, x.since.UnixMicro())
	}
	for _, l := range r.lines {
		n := len(args)
		args = append(args, string(l.budget.App), l.budget.ID, l.since.UnixMicro(), l.amount)
		this := fmt.Sprintf("b.tenant = $%d AND b.budget = $%d AND b.since = $%d", n+1, n+2, n+3)
		// No sum may leave 64 bits: PostgreSQL would fail, SQLite would continue with a floating-point number. So each
		// term is compared with what the terms before leave.
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
	// The condition is evaluated over all budgets at once: one that does not cover its line refuses the whole
	// reservation.
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
		b.Exec(nil, `UPDATE budget_balance SET reserved = `+amount.AddSQL("reserved", "$4")+` WHERE tenant = $1 AND budget = $2 AND since = $3
			AND EXISTS (SELECT 1 FROM reservation WHERE tenant = $5 AND call = $6)`,
			string(l.budget.App), l.budget.ID, l.since.UnixMicro(), l.amount, tenant, call)
	}
	// The call is registered before the write, so that a renewal cannot miss a reservation whose commit is known only
	// later. If the outcome of the write is unknown, it is not renewed and expires.
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

// lockBalances adds row locks on the balances to b, in the order of the lines, which is the same in all transactions.
// Without them two calls could both reserve the last tokens. SQLite has one writer at a time and needs none.
func (r *CostReservation) lockBalances(b *db.Batch) {
	if r.gate.service.db.Engine() != db.Postgres {
		return
	}
	for _, l := range r.lines {
		b.Exec(nil, `SELECT 1 FROM budget_balance WHERE tenant = $1 AND budget = $2 AND since = $3 FOR UPDATE`,
			string(l.budget.App), l.budget.ID, l.since.UnixMicro())
	}
}
