package billing

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

// account is what the books of an app and its usage come to together.
type account struct {
	now     time.Time
	credits []Credit // as the books have them
	left    []Credit // once the drafts are final
	drafts  []draft  // the oldest first
}

// draft is an invoice as it would be, with what its usage costs the platform.
type draft struct {
	Invoice
	costs map[string]Money // by currency
}

// account works out the drafts of an app, and what credits would pay of them. It writes nothing.
func (s *Service) account(ctx context.Context, ask query, app tenancy.App) (account, error) {
	var st billed
	var now int64
	err := ask(ctx, func(r db.Row) error { return r.Scan(&st.month, &st.until, &st.recorded, &now) },
		`SELECT COALESCE(l.billed_month, ''), COALESCE(l.billed_until, 0), COALESCE(l.billed_recorded, 0), stoa_now()
		FROM (SELECT 1) one LEFT JOIN ledger l ON l.app = $1`, string(app.ID))
	if err != nil {
		return account{}, fmt.Errorf("read the books of app %s: %w", app.Name, err)
	}
	a := account{now: micros(now)}
	if a.credits, err = credits(ctx, ask, app.ID); err != nil {
		return a, err
	}
	a.left = slices.Clone(a.credits)
	for {
		c := s.counting(ask, app, st, a.now)
		span, found, err := c.next(ctx)
		if err != nil || !found {
			return a, err
		}
		d, err := c.draft(ctx, span, a.left)
		if err != nil {
			return a, err
		}
		a.drafts = append(a.drafts, d)
		st = billed{span.month, span.end, math.MaxInt64} // what is late is on the first
	}
}

// span is the time of an invoice, in microseconds: usage from begin on, and where late is set what was used before.
type span struct {
	month      string
	begin, end int64
	late       bool
}

// counting adds up usage that is not invoiced.
type counting struct {
	ask    query
	app    tenancy.App
	state  billed
	tariff tariff
	now    time.Time

	// Of what was recorded from sealed on, only what is marked for invoice counts. A draft marks nothing and counts all.
	sealed  int64
	invoice string
}

func (s *Service) counting(ask query, app tenancy.App, state billed, now time.Time) counting {
	return counting{ask: ask, app: app, state: state, tariff: s.tariff(app), now: now, sealed: math.MaxInt64}
}

// next returns the span of the first invoice that is not made yet, and whether there is anything to be invoiced.
func (c counting) next(ctx context.Context) (span, bool, error) {
	oldest, late := int64(-1), false
	err := c.ask(ctx, func(r db.Row) error { return r.Scan(&oldest) },
		`SELECT COALESCE(MIN(at), -1) FROM usage WHERE (tenant || '') = $1 AND at >= $2`, string(c.app.ID), c.state.until)
	if err == nil && c.state.recorded < math.MaxInt64 {
		err = c.ask(ctx, func(r db.Row) error { late = true; return r.Scan(new(int)) }, `SELECT 1 FROM usage u
			WHERE (u.tenant || '') = $1 AND u.recorded_at >= $2 AND u.at < $3
				AND NOT EXISTS (SELECT 1 FROM usage_billed b WHERE b.tenant = u.tenant AND b.task = u.task AND b.key = u.key) LIMIT 1`,
			string(c.app.ID), c.state.recorded, c.state.until)
	}
	if err != nil {
		return span{}, false, fmt.Errorf("look for usage of app %s that is not invoiced: %w", c.app.Name, err)
	}
	if oldest < 0 && !late {
		return span{}, false, nil
	}
	if late {
		oldest = c.state.until
	}
	begin, end := Month.Bounds(micros(oldest), c.tariff.zone)
	if month(begin, c.tariff.zone) <= c.state.month { // the time zone has changed
		begin, end = Month.Bounds(end, c.tariff.zone)
	}
	return span{month(begin, c.tariff.zone), c.state.until, end.UnixMicro(), late}, true, nil
}

// month names the month that begins at t.
func month(t time.Time, zone *time.Location) string { return t.In(zone).Format("2006-01") }

// begin is when the month of a span begins, or what the last invoice left of it.
func (c counting) begin(sp span) time.Time {
	begin, _ := Month.Bounds(micros(sp.end-1), c.tariff.zone)
	return micros(max(begin.UnixMicro(), sp.begin))
}

// draft works out the invoice of a span. What credits pay of it they no longer have left.
func (c counting) draft(ctx context.Context, sp span, left []Credit) (draft, error) {
	edges := []int64{}
	for _, credit := range left {
		if credit.Remaining > 0 && !credit.Expires.IsZero() {
			edges = append(edges, credit.Expires.UnixMicro())
		}
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	sums, err := c.sums(ctx, sp, edges)
	if err != nil {
		return draft{}, fmt.Errorf("add up the usage of app %s in %s: %w", c.app.Name, sp.month, err)
	}
	d := draft{costs: map[string]Money{}, Invoice: Invoice{
		ID: sp.month, Kind: Invoiced, Status: Draft, App: c.app.Name, AppID: c.app.ID, Plan: c.app.Plan, Credits: []CreditUse{}, Totals: []InvoiceTotal{},
		Period: Period{Stamp{c.begin(sp)}, Stamp{micros(sp.end)}, c.tariff.zone.String()}, Lines: c.tariff.lines(sums),
	}}
	for _, u := range sums {
		if u.Cost > 0 {
			d.costs[u.Currency] = d.costs[u.Currency].Add(u.Cost)
		}
	}
	for _, line := range d.Lines {
		if line.Currency == "" {
			continue
		}
		t := d.total(line.Currency)
		t.Charge = t.Charge.Add(line.Charge)
	}
	d.pay(c.tariff, sums, edges, left)
	return d, nil
}

// pay has credits pay: what is charged for the time up to each edge, those credits that had not expired before it.
func (d *draft) pay(t tariff, sums []sum, edges []int64, left []Credit) {
	before := map[string]Money{}
	for slice := range len(edges) + 1 {
		charged := map[string]Money{}
		if slice == len(edges) {
			for _, total := range d.Totals {
				charged[total.Currency] = total.Charge
			}
		} else {
			for _, line := range t.lines(slices.DeleteFunc(slices.Clone(sums), func(u sum) bool { return u.slice > slice })) {
				charged[line.Currency] = charged[line.Currency].Add(line.Charge)
			}
		}
		for i := range left {
			c := &left[i]
			if !c.Expires.IsZero() && slice > 0 && c.Expires.UnixMicro() <= edges[slice-1] {
				continue
			}
			amount := min(c.Remaining, charged[c.Currency]-before[c.Currency])
			if amount <= 0 {
				continue
			}
			c.Remaining -= amount
			before[c.Currency] += amount
			d.use(c, amount)
		}
		for currency, charge := range charged {
			before[currency] = max(before[currency], charge)
		}
	}
	for i, total := range d.Totals {
		d.Totals[i].Due = total.Charge - total.Credits
	}
}

// use notes that a credit pays an amount.
func (d *draft) use(c *Credit, amount Money) {
	d.total(c.Currency).Credits += amount
	for i := range d.Credits {
		if d.Credits[i].Credit == c.ID {
			d.Credits[i].Amount += amount
			return
		}
	}
	d.Credits = append(d.Credits, CreditUse{c.ID, c.Currency, amount})
}
