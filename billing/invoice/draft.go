package invoice

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"stoa/billing/amount"
	"stoa/billing/calendar"
	"stoa/billing/ledger"
	"stoa/billing/party"
	"stoa/billing/price"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// accountState is an app's credits and drafts, as the ledger and the usage that is not invoiced yet determine them.
type accountState struct {
	now time.Time
	// credits are as the ledger has them.
	credits []Credit
	// creditsAfter are the same credits as they would be if all drafts were final.
	creditsAfter []Credit
	// drafts are in the order of their months.
	drafts []draft
	// carried is what rounding has left of the invoices before, by currency.
	carried map[string]amount.Money
}

// draft is an invoice before it is final, with what its usage costs the platform.
type draft struct {
	Invoice
	// costs are by currency.
	costs map[string]amount.Money
	// sums are the usage that it charges, in the slices that edges separate: Unix microseconds, ascending, at which
	// credits expire.
	sums  []invoiceSum
	edges []int64
	// basis is the JSON of the usage that an invoice which is made again takes over, in place of sums; "" for none.
	basis string
	// options are those of an invoice that is made again, nil for others.
	options *ReissueOptions
	// reinstated are the amounts of expired and revoked credits that become available again for it.
	reinstated []CreditUse
	// feeSlice is the slice in which the month begins: its base fee is charged then.
	feeSlice int
}

// computeAccount computes the drafts of an app and what credits would pay of them. It writes nothing. request may read
// inside a transaction.
func (s *Service) computeAccount(ctx context.Context, request queryFunc, app tenancy.App) (accountState, error) {
	var st ledger.Billed
	var now int64
	err := request(ctx, func(r db.Row) error { return r.Scan(&st.Month, &st.Until, &st.Recorded, &now) },
		// An app without a ledger still has one row, with zeros.
		`SELECT COALESCE(l.billed_month, ''), COALESCE(l.billed_until, 0), COALESCE(l.billed_recorded, 0), stoa_now()
		FROM (SELECT 1) one LEFT JOIN ledger l ON l.app = $1`, string(app.ID))
	if err != nil {
		return accountState{}, fmt.Errorf("read the ledger of app %s: %w", app.Name, err)
	}
	a := accountState{now: time.UnixMicro(now).UTC()}
	if a.credits, err = readCredits(ctx, request, app.ID); err != nil {
		return a, err
	}
	a.creditsAfter = slices.Clone(a.credits)
	if a.carried, err = readCarried(ctx, request, app.ID); err != nil {
		return a, err
	}
	parties, err := party.Read(ctx, party.QueryFunc(request), app.ID)
	if err != nil {
		return a, err
	}
	terms := s.prices.CachedTerms()
	for {
		c := newUsageCounter(request, terms, app, st, a.now)
		span, found, err := c.nextSpan(ctx)
		if err != nil || !found {
			return a, err
		}
		d, err := c.draftInvoice(ctx, span, a.creditsAfter, a.carried)
		if err != nil {
			return a, err
		}
		d.Parties = parties
		a.drafts = append(a.drafts, d)
		// Late usage, recorded after its month was invoiced, is on the first draft. MaxInt64 keeps it off the later
		// ones.
		st = ledger.Billed{Month: span.month, Until: span.end, Recorded: math.MaxInt64}
	}
}

// invoiceSpan is the time that an invoice covers, in Unix microseconds: usage from begin to end and, if late is set,
// unbilled usage from before begin.
type invoiceSpan struct {
	month      string
	begin, end int64
	late       bool
	// id is the invoice's. It is month, except for what is invoiced at a deletion in a month that has not begun.
	id string
	// until is the end of the invoice's period: end, or if the app is deleted before that its deletion.
	until int64
	// fee is the line for the month's base fee, nil if there is none.
	fee *Line
}

// usageCounter sums usage that is not invoiced yet.
type usageCounter struct {
	query  queryFunc
	app    tenancy.App
	state  ledger.Billed
	terms  price.Terms
	tariff tariff
	now    time.Time

	// sealed and invoice restrict what counts: a row recorded at sealed or later counts only if usage_billed assigns it
	// to invoice. For a draft sealed is MaxInt64, so all rows count. markUsage sets both.
	sealed  int64
	invoice string
}

// newUsageCounter returns a counter for drafts.
func newUsageCounter(request queryFunc, terms price.Terms, app tenancy.App, state ledger.Billed, now time.Time) usageCounter {
	return usageCounter{query: request, app: app, state: state, terms: terms, tariff: newTariff(terms, app), now: now, sealed: math.MaxInt64}
}

// newFinalCounter returns a counter for what becomes final in the transaction of l. Its terms are those of the database: the
// caches of this process may not have heard of the last change yet.
func newFinalCounter(ctx context.Context, l *ledger.Tx, app tenancy.App) (usageCounter, error) {
	terms, err := price.ReadTerms(ctx, l.Query)
	if err != nil {
		return usageCounter{}, err
	}
	return newUsageCounter(l.Query, terms, app, l.Billed, l.Now), nil
}

// nextSpan returns the span of the first month that is not invoiced and has usage or a base fee, and whether there is
// any. Months without both have no invoice.
func (c usageCounter) nextSpan(ctx context.Context) (invoiceSpan, bool, error) {
	oldest, late := int64(-1), false
	err := c.query(ctx, func(r db.Row) error { return r.Scan(&oldest) },
		`SELECT COALESCE(MIN(at), -1) FROM usage WHERE (tenant || '') = $1 AND at >= $2`, string(c.app.ID), c.state.Until)
	if err == nil && c.state.Recorded < math.MaxInt64 {
		err = c.query(ctx, func(r db.Row) error { late = true; return r.Scan(new(int)) }, `SELECT 1 FROM usage u
			WHERE (u.tenant || '') = $1 AND u.recorded_at >= $2 AND u.at < $3
				AND NOT EXISTS (SELECT 1 FROM usage_billed b WHERE b.tenant = u.tenant AND b.task = u.task AND b.key = u.key) LIMIT 1`,
			string(c.app.ID), c.state.Recorded, c.state.Until)
	}
	if err != nil {
		return invoiceSpan{}, false, fmt.Errorf("look for usage of app %s that is not invoiced: %w", c.app.Name, err)
	}
	changes, err := c.readPlanChanges(ctx)
	if err != nil {
		return invoiceSpan{}, false, err
	}
	if fee, ok := c.nextBaseFee(changes); ok && (oldest < 0 || fee.UnixMicro() < oldest) {
		oldest = fee.UnixMicro()
	}
	if late {
		oldest = c.state.Until
	}
	if oldest < 0 {
		return invoiceSpan{}, false, nil
	}
	begin, end := calendar.Month.Bounds(time.UnixMicro(oldest).UTC(), c.tariff.zone)
	// The plan's time zone has changed, and the month that was just invoiced would come again: take the next one.
	if monthName(begin, c.tariff.zone) <= c.state.Month {
		begin, end = calendar.Month.Bounds(end, c.tariff.zone)
	}
	sp := invoiceSpan{month: monthName(begin, c.tariff.zone), begin: c.state.Until, end: end.UnixMicro(), until: end.UnixMicro(), late: late}
	sp.id = sp.month
	if fee, ok := c.baseFee(changes, begin, end); ok {
		sp.fee = &fee
	}
	return sp, true, nil
}

// monthName returns the id of the invoice of the month that begins at t.
func monthName(t time.Time, zone *time.Location) string { return t.In(zone).Format("2006-01") }

// spanBegin returns the begin of the span's month, or the end of the last invoice if that is later.
func (c usageCounter) spanBegin(sp invoiceSpan) time.Time {
	begin, _ := calendar.Month.Bounds(time.UnixMicro(sp.end-1).UTC(), c.tariff.zone)
	return time.UnixMicro(max(begin.UnixMicro(), sp.begin)).UTC()
}

// draftInvoice computes the invoice of a span, subtracts what credits pay of it from left, and replaces what is carried.
// The expiry of each open credit splits the span (edges), since a credit pays only for usage from before its end.
func (c usageCounter) draftInvoice(ctx context.Context, sp invoiceSpan, left []Credit, carried map[string]amount.Money) (draft, error) {
	d := draft{edges: []int64{}, costs: map[string]amount.Money{}, Invoice: c.newInvoice(sp.id)}
	for _, credit := range left {
		if credit.Remaining > 0 && !credit.Expires.IsZero() {
			d.edges = append(d.edges, credit.Expires.UnixMicro())
		}
	}
	slices.Sort(d.edges)
	d.edges = slices.Compact(d.edges)
	var err error
	if d.sums, err = c.sumSpan(ctx, sp, d.edges); err != nil {
		return draft{}, fmt.Errorf("add up the usage of app %s in %s: %w", c.app.Name, sp.month, err)
	}
	for _, u := range d.sums {
		if u.Cost > 0 {
			d.costs[u.Currency] = d.costs[u.Currency].Add(u.Cost)
		}
	}
	begin := c.spanBegin(sp)
	d.feeSlice, _ = slices.BinarySearch(d.edges, begin.UnixMicro()+1)
	if sp.until < begin.UnixMicro() {
		begin, _ = calendar.Month.Bounds(time.UnixMicro(sp.until).UTC(), c.tariff.zone)
	}
	d.Period = Period{Timestamp{begin.UTC()}, Timestamp{time.UnixMicro(sp.until).UTC()}, c.tariff.zone.String()}
	d.charge(c.tariff, sp.fee, left, carried)
	return d, nil
}

// newInvoice returns a draft of the app without lines.
func (c usageCounter) newInvoice(id string) Invoice {
	return Invoice{
		ID: id, Kind: Invoiced, Status: Draft, App: c.app.Name, AppID: c.app.ID, Plan: c.app.Plan, Credits: []CreditUse{}, Totals: []Total{}, Taxes: []TaxLine{},
	}
}

// charge sets the lines, credits, taxes and totals of d by its sums and the base fee, which may be nil. It subtracts what
// credits pay from left, and replaces what is carried.
func (d *draft) charge(t tariff, fee *Line, left []Credit, carried map[string]amount.Money) {
	d.setUsageLines(t, fee)
	d.applyCredits(t, fee, left)
	for i := range d.Totals {
		d.settleTotal(&d.Totals[i], t.plan.Taxes, carried)
	}
}

// setUsageLines sets the lines of d by its sums and the base fee, which may be nil.
func (d *draft) setUsageLines(t tariff, fee *Line) {
	lines := t.invoiceLines(d.sums)
	for _, u := range d.sums {
		if unpriced, _ := t.findUnpriced(u); unpriced {
			d.UnpricedCalls = amount.Add(d.UnpricedCalls, amount.Add(u.ModelCalls, u.Embeddings))
		}
	}
	if fee != nil {
		lines = append([]Line{*fee}, lines...)
	}
	d.setLines(lines)
}

// setLines sets the lines of d and adds them to its totals.
func (d *draft) setLines(lines []Line) {
	d.Lines = lines
	for _, line := range d.Lines {
		if line.Currency == "" {
			continue
		}
		total := d.totalFor(line.Currency)
		total.Charge = total.Charge.Add(line.Charge)
	}
}

// applyCredits lets credits pay. For each edge in turn, what is charged for the time up to it is paid by the credits
// that had not expired before it. The charge up to an edge is computed from all usage up to it, not per slice: plan
// prices are not additive over slices.
func (d *draft) applyCredits(t tariff, fee *Line, left []Credit) {
	// before is what earlier slices have covered, paid or not, by currency.
	before := map[string]amount.Money{}
	for slice := range len(d.edges) + 1 {
		charged := map[string]amount.Money{}
		if slice == len(d.edges) {
			for _, total := range d.Totals {
				charged[total.Currency] = total.Charge
			}
		} else {
			for _, line := range t.invoiceLines(slices.DeleteFunc(slices.Clone(d.sums), func(u invoiceSum) bool { return u.sliceIndex > slice })) {
				charged[line.Currency] = charged[line.Currency].Add(line.Charge)
			}
			if fee != nil && slice >= d.feeSlice {
				charged[fee.Currency] = charged[fee.Currency].Add(fee.Charge)
			}
		}
		for i := range left {
			c := &left[i]
			if !c.Expires.IsZero() && slice > 0 && c.Expires.UnixMicro() <= d.edges[slice-1] {
				continue
			}
			amount := min(c.Remaining, charged[c.Currency]-before[c.Currency])
			if amount <= 0 {
				continue
			}
			c.Remaining -= amount
			before[c.Currency] += amount
			d.recordCreditUse(c, amount)
		}
		for currency, charge := range charged {
			before[currency] = max(before[currency], charge)
		}
	}
}

// recordCreditUse adds an amount to what a credit pays of the draft.
func (d *draft) recordCreditUse(c *Credit, amount amount.Money) {
	d.totalFor(c.Currency).Credits += amount
	for i := range d.Credits {
		if d.Credits[i].Credit == c.ID {
			d.Credits[i].Amount += amount
			return
		}
	}
	d.Credits = append(d.Credits, CreditUse{c.ID, c.Currency, amount})
}
