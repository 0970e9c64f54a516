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

// Ask is a model call that is about to be made. Input is at least as many tokens as it sends, Output the most that it may
// be answered with; Least is how many are still of use.
type Ask struct {
	Call     string
	Task     agentsvc.TaskID
	Epoch    int64
	Agent    string
	Owner    agentsvc.Owner
	Provider string
	Model    string
	Input    int64
	Output   int64
	Least    int64
}

// Reservation is what a call may use of every budget that applies to it, until it is settled. Output is how many tokens
// the call may be answered with: less than was asked for where the budgets have no more.
type Reservation struct {
	Output int64
	Began  time.Time // when the call began for the budgets: its usage must say the same

	a        *Allowance
	ask      Ask
	currency string // that the call is charged in
	lines    []line
}

// Of waiting for calls under way to give back what they do not use.
const (
	firstLook = 20 * time.Millisecond
	lastLook  = 500 * time.Millisecond
)

// Reserve takes what a call can cost at most from every budget that applies to it, or from none. Where hard budgets have
// less left, the call is bounded to that, as long as it is of use; where only calls under way are in the way it waits for
// them a while. Then it returns an [*agentsvc.ExhaustedError]. The reservation lapses unless this process, in
// [Service.Run], keeps it until it is settled. Without a budget that applies it is nil.
func (a *Allowance) Reserve(ctx context.Context, ask Ask) (*Reservation, error) {
	if !a.Bounded() {
		return nil, nil //nolint:nilnil // there is nothing to settle
	}
	currency := a.currency()
	budgets, foreign := a.applying(currency, ask.Agent, ask.Owner, ask.Provider, ask.Model)
	if err := a.exchange(currency, budgets, foreign); err != nil {
		return nil, err
	}
	if len(budgets) == 0 {
		return nil, nil //nolint:nilnil // as above
	}
	ask.Least = min(ask.Least, ask.Output)
	r := &Reservation{a: a, ask: ask, currency: currency, Output: ask.Output}
	began, wait := time.Now(), firstLook
	for {
		r.Began = a.s.now()
		bounds, err := a.bounds(budgets, ask, r.Began)
		if err != nil {
			return nil, err
		}
		left, done, err := r.take(ctx, bounds)
		if err != nil || done {
			return r, err
		}
		now, later := fitting(bounds, left, ask, Balance.Remaining), fitting(bounds, left, ask, Balance.unspent)
		switch {
		case now >= ask.Least:
			r.Output = min(now, r.Output)
			continue
		case later < ask.Least || time.Since(began) > a.s.patience:
			return nil, shortest(bounds, left, ask)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
			wait = min(2*wait, lastLook)
			r.Output = ask.Output
		}
	}
}

// unspent is what would be left if no call were under way.
func (b Balance) unspent() int64 { return max(0, less(b.Amount, b.Committed)) }

// bounds returns what a call can cost at most, for each budget. A hard budget of money refuses what has no price.
func (a *Allowance) bounds(budgets []Budget, ask Ask, at time.Time) ([]bound, error) {
	list := make([]bound, 0, len(budgets))
	for _, b := range budgets {
		x := bound{budget: b}
		x.since, x.until = b.Window.Bounds(at, b.zone)
		switch b.Unit {
		case InCalls:
			x.amount = func(int64) int64 { return 1 }
		case InTokens:
			x.amount = func(output int64) int64 { return more(ask.Input, output) }
		case InMoney:
			book := a.s.book.Load()
			if _, priced := book.most(b.Currency, ask.Provider, ask.Model, 1, 1, at); !priced && b.Hard {
				return nil, agentsvc.Invalid("", "the model %s/%s has no price, and the budget %s is in money: the operator must add one to the price book",
					ask.Provider, ask.Model, b.Name)
			}
			x.amount = func(output int64) int64 {
				most, _ := book.most(b.Currency, ask.Provider, ask.Model, ask.Input, output, at)
				return int64(most)
			}
		}
		list = append(list, x)
	}
	return list, nil
}

// fitting returns the most tokens that a call may be answered with where each hard budget has so much left, -1 where there
// is not even room for an empty answer.
func fitting(bounds []bound, left []Balance, ask Ask, room func(Balance) int64) int64 {
	return int64(sort.Search(int(ask.Output)+1, func(output int) bool {
		for i, x := range bounds {
			if left[i].Hard && x.amount(int64(output)) > room(left[i]) {
				return true
			}
		}
		return false
	})) - 1
}

// shortest is the error about the hard budget that is in the way of the least useful answer; of several the one that lasts
// longest.
func shortest(bounds []bound, left []Balance, ask Ask) error {
	var found *agentsvc.ExhaustedError
	for i, x := range bounds {
		if !left[i].Hard || x.amount(ask.Least) <= left[i].Remaining() {
			continue
		}
		err := left[i].exhausted()
		err.Needs = x.amount(ask.Least)
		if found == nil || err.Resets.IsZero() || !found.Resets.IsZero() && err.Resets.After(found.Resets) {
			found = err
		}
	}
	return found
}

// take writes the reservation, if every hard budget has room for it, and returns the balances before it.
func (r *Reservation) take(ctx context.Context, bounds []bound) ([]Balance, bool, error) {
	tenant, call := string(r.a.tenant), r.ask.Call
	r.lines = make([]line, len(bounds))
	left := make([]Balance, len(bounds)) // whoever stops waiting leaves it to the writer
	b := db.Batch{Key: tenant}
	var over, rows []string
	args := []any{tenant, call}
	for i, x := range bounds {
		r.lines[i] = line{x.budget, x.since, x.until, x.amount(r.Output)}
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
	r.lock(&b)
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
		append(args[:holder:holder], string(r.ask.Task), r.ask.Epoch, r.a.s.holder, lease.Microseconds())...)
	b.Exec(nil, `INSERT INTO reservation_line (tenant, call, owner, budget, since, amount)
		SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), v.column1, v.column2, v.column3, v.column4 FROM (VALUES `+strings.Join(rows, ", ")+`) AS v
		WHERE EXISTS (SELECT 1 FROM reservation WHERE tenant = $1 AND call = $2)`, args...)
	for _, l := range r.lines {
		b.Exec(nil, `UPDATE budget_balance SET reserved = `+plusAtMost("reserved", "$4")+` WHERE tenant = $1 AND budget = $2 AND since = $3
			AND EXISTS (SELECT 1 FROM reservation WHERE tenant = $5 AND call = $6)`,
			string(l.budget.App), l.budget.ID, l.since.UnixMicro(), l.amount, tenant, call)
	}
	r.a.s.held.add(call)
	err := r.a.s.db.Platform().Write(ctx, &b)
	if err != nil || n == 0 {
		r.a.s.held.drop(call)
	}
	if err != nil {
		return nil, false, fmt.Errorf("reserve: %w", err)
	}
	return left, n > 0, nil
}

// lock adds to b that nobody else changes the balances until it is committed. On SQLite nobody could.
func (r *Reservation) lock(b *db.Batch) {
	if r.a.s.db.Engine() != db.Postgres {
		return
	}
	for _, l := range r.lines {
		b.Exec(nil, `SELECT 1 FROM budget_balance WHERE tenant = $1 AND budget = $2 AND since = $3 FOR UPDATE`,
			string(l.budget.App), l.budget.ID, l.since.UnixMicro())
	}
}
