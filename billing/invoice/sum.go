package invoice

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"stoa/billing/amount"
	"stoa/billing/calendar"
	"stoa/billing/ledger"
	"stoa/billing/price"
	"stoa/billing/usage"
	"stoa/tenancy/db"
)

// invoiceSum is the sum of usage rows of one kind, model, price and slice of time. Its JSON is stored with the invoice, so
// a renamed field would lose its value.
type invoiceSum struct {
	price.Usage
	price.Price
	Estimated bool
	// Late is set for usage from before the span that was recorded after the previous invoice.
	Late bool
	// Month is the month in which late usage was used, such as 2026-10.
	Month string `json:",omitempty"`
	// sliceIndex is how many of the edges are at or before the usage.
	sliceIndex int
}

// markUsage assigns the rows recorded within MaxRecordDelay to the invoice of sp (table usage_billed), and restricts c
// to them and to older rows. A row that commits later has no mark and is on the next invoice.
func markUsage(ctx context.Context, l *ledger.Tx, c *usageCounter, sp invoiceSpan) error {
	c.invoice, c.sealed = sp.id, max(l.Billed.Recorded, l.Now.Add(-usage.MaxRecordDelay).UnixMicro())
	_, err := l.Exec(ctx, `INSERT INTO usage_billed (tenant, task, key, invoice, recorded_at)
		SELECT u.tenant, u.task, u.key, CAST($4 AS TEXT), u.recorded_at FROM usage u
		WHERE (u.tenant || '') = $1 AND u.recorded_at >= $2 AND u.at < $3 ON CONFLICT (tenant, task, key) DO NOTHING`,
		string(l.App), c.sealed, sp.end, sp.id)
	return err
}

// unmarkUsage deletes the marks of rows that Billed.recorded covers from now on.
func unmarkUsage(ctx context.Context, l *ledger.Tx, c usageCounter) error {
	_, err := l.Exec(ctx, `DELETE FROM usage_billed WHERE tenant = $1 AND recorded_at < $2`, string(l.App), c.sealed)
	return err
}

const sumColumns = `u.kind, u.provider, u.model, u.currency, u.price_version, u.unpriced, u.estimated`

// sumSpan sums the usage of a span, split at edges (Unix microseconds, ascending), and after that its late usage.
func (c usageCounter) sumSpan(ctx context.Context, sp invoiceSpan, edges []int64) ([]invoiceSum, error) {
	var slice strings.Builder
	// The slice of a row is how many edges are not after it. The edges are integers of this program, so they can stand
	// in the SQL text.
	slice.WriteString("0")
	for _, edge := range edges {
		fmt.Fprintf(&slice, " + CASE WHEN u.at >= %d THEN 1 ELSE 0 END", edge)
	}
	sql := `SELECT ` + sumColumns + `, CAST(` + slice.String() + ` AS BIGINT),
			` + amount.SumsSQL("u.input_tokens", "u.output_tokens", "u.cache_read_tokens", "u.cache_write_tokens", "u.reasoning_tokens", "u.model_calls",
		"u.tool_calls", "u.runs", "u.run_micros", "u.embeddings", "u.stored_bytes", "u.cost", "u.charge") + `
		` + countedRows + ` AND u.recorded_at >= $6
		GROUP BY ` + sumColumns + `, 8 ORDER BY ` + sumColumns + `, 8`
	var list []invoiceSum
	add := func(late string, from, to, recorded int64) error {
		return c.query(ctx, func(r db.Row) error {
			u := invoiceSum{Late: late != "", Month: late}
			var run int64
			err := r.Scan((*string)(&u.Kind), &u.Provider, &u.Model, &u.Currency, &u.Version, &u.Unpriced, &u.Estimated, &u.sliceIndex,
				&u.InputTokens, &u.OutputTokens, &u.CacheReadTokens, &u.CacheWriteTokens, &u.ReasoningTokens, &u.ModelCalls,
				&u.ToolCalls, &u.Runs, &run, &u.Embeddings, &u.StoredBytes, (*int64)(&u.Cost), (*int64)(&u.Charge))
			u.RunTime = amount.Duration(run)
			list = append(list, u)
			return err
		}, sql, string(c.app.ID), from, to, c.invoice, c.sealed, recorded)
	}
	if err := add("", sp.begin, sp.end, math.MinInt64); err != nil || !sp.late {
		return list, err
	}
	for from := int64(math.MinInt64); ; {
		oldest, found, err := c.findLateUsage(ctx, from, sp.begin)
		if err != nil || !found {
			return list, err
		}
		begin, end := calendar.Month.Bounds(oldest, c.tariff.zone)
		from = min(end.UnixMicro(), sp.begin)
		if err := add(monthName(begin, c.tariff.zone), begin.UnixMicro(), from, c.state.Recorded); err != nil {
			return list, err
		}
	}
}

// countedRows selects the rows of usage (u) used from $2 to $3 that count: no other invoice than $4 has them, and they were
// recorded before $5 or are marked for this invoice.
const countedRows = `FROM usage u LEFT JOIN usage_billed b ON b.tenant = u.tenant AND b.task = u.task AND b.key = u.key
	WHERE (u.tenant || '') = $1 AND u.at >= $2 AND u.at < $3 AND COALESCE(b.invoice, $4) = $4 AND (u.recorded_at < $5 OR b.invoice = $4)`

// findLateUsage returns the time of the first late usage from a time on and before another, and whether there is any.
func (c usageCounter) findLateUsage(ctx context.Context, from, to int64) (at time.Time, found bool, err error) {
	err = c.query(ctx, func(r db.Row) error {
		var oldest int64
		err := r.Scan(&oldest)
		at, found = time.UnixMicro(oldest).UTC(), true
		return err
	}, `SELECT u.at `+countedRows+` AND u.recorded_at >= $6 ORDER BY u.at LIMIT 1`, string(c.app.ID), from, to, c.invoice, c.sealed, c.state.Recorded)
	return at, found, err
}

// mergeSums merges the slices: it sums rows of the same kind, model and price, and keeps the order of their first
// occurrence.
func mergeSums(sums []invoiceSum) []invoiceSum {
	type key struct {
		kind                               amount.Kind
		provider, model, currency, version string
		month                              string
		unpriced, estimated, late          bool
	}
	at := map[key]int{}
	var list []invoiceSum
	for _, u := range sums {
		k := key{u.Kind, u.Provider, u.Model, u.Currency, u.Version, u.Month, u.Unpriced, u.Estimated, u.Late}
		i, seen := at[k]
		if !seen {
			at[k] = len(list)
			list = append(list, u)
			continue
		}
		have := &list[i]
		have.Quantities = have.Quantities.Add(u.Quantities)
		have.Cost, have.Charge = have.Cost.Add(u.Cost), have.Charge.Add(u.Charge)
	}
	return list
}
