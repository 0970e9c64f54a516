package usage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/tenancy/db"
)

// Query selects usage of an app from From, inclusive, to To, exclusive. By is a list of [Groups] by which it
// is summed.
type Query struct {
	From, To time.Time
	By       []string
}

// columnsByGroup has, for each group, the select list of the six grouping columns, with constants where the group does
// not distinguish. The columns are agent, provider, model, user, key and the number of the UTC day.
var columnsByGroup = map[string]string{
	"agent": "agent, '', '', '', '', 0",
	"model": "'', provider, model, '', '', 0",
	"user":  "'', '', '', owner_sub, '', 0",
	"key":   "'', '', '', '', key_id, 0",
	"day":   "'', '', '', '', '', at / 86400000000",
}

// Groups are the values of [Query.By].
var Groups = []string{"agent", "model", "user", "key", "day"}

// Sum is a sum of usage. Of the grouping fields only those that the query asked for are set.
type Sum struct {
	Agent, Provider, Model, User, Key string
	Day                               time.Time
	amount.Quantities
	Cost, Charge amount.Money
	// Currency is "" if no price was in force.
	Currency string
	// Unpriced is the number of rows, of model calls and embeddings, that have no price.
	Unpriced int64
	// Charges has the money by currency if a total has several; then Cost, Charge and Currency are zero.
	Charges []ChargedAmount
}

// ChargedAmount is the cost and the charge of usage in a currency.
type ChargedAmount struct {
	Currency     string
	Cost, Charge amount.Money
}

// addSum adds x to s. The caller ensures that at most one of them has a currency, or both the same; totalSums separates
// others.
func (s *Sum) addSum(x Sum) {
	s.Quantities = s.Add(x.Quantities)
	s.Cost, s.Charge = s.Cost.Add(x.Cost), s.Charge.Add(x.Charge)
	s.Unpriced += x.Unpriced
	s.Currency = cmp.Or(s.Currency, x.Currency)
}

// maxRows bounds the rows of a query's result. A query that exceeds it is an error, not a truncated result.
const maxRows = 10_000

// SumUsage returns the usage of an app, summed by the groups of q, and the totals. Money of different currencies is
// never summed: each currency has rows of its own. If there is no money, the totals name the currency in which the app
// is charged now.
func (s *Service) SumUsage(ctx context.Context, app db.ID, plan string, q Query) (rows []Sum, totals Sum, err error) {
	// The condition tenant || '' = $1 is for the index usage_at, tenant = $1 for row-level security.
	rows, err = sumRows(ctx, s.db.Tenant(app), q, `tenant || '' = $1 AND tenant = $1 AND`, string(app))
	return rows, totalSums(rows, s.prices.CurrencyForPlan(plan)), err
}

// SumAllUsage returns the totals of the usage of all apps; the groups of q are not used.
func (s *Service) SumAllUsage(ctx context.Context, q Query) (Sum, error) {
	q.By = nil
	rows, err := sumRows(ctx, s.db.Platform(), q, `CAST($1 AS TEXT) = '' AND`, "")
	return totalSums(rows, s.prices.CurrencyForPlan("")), err
}

// sumRows returns the usage that q and the condition where select, summed by the groups of q and by currency.
func sumRows(ctx context.Context, h *db.Handle, q Query, where, app string) (rows []Sum, err error) {
	by, err := q.groupColumns()
	if err != nil {
		return nil, err
	}
	var b db.Batch
	b.Query(func(row db.Row) error {
		var x Sum
		var day, run int64
		err := row.Scan(&x.Agent, &x.Provider, &x.Model, &x.User, &x.Key, &day, &x.Currency, &x.InputTokens, &x.OutputTokens, &x.CacheReadTokens,
			&x.CacheWriteTokens, &x.ReasoningTokens, &x.ModelCalls, &x.ToolCalls, &x.Runs, &run, &x.Embeddings, &x.StoredBytes,
			(*int64)(&x.Cost), (*int64)(&x.Charge), &x.Unpriced)
		x.RunTime = amount.Duration(run)
		if slices.Contains(q.By, "day") {
			x.Day = time.Unix(day*86400, 0).UTC()
		}
		rows = append(rows, x)
		return err
	}, `SELECT `+by+`, currency, `+amount.SumsSQL("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "model_calls",
		"tool_calls", "runs", "run_micros", "embeddings", "stored_bytes", "cost", "charge", "CASE WHEN unpriced THEN 1 ELSE 0 END")+`
		FROM usage WHERE `+where+` at >= $2 AND at < $3
		GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 6, 1, 2, 3, 4, 5, 7 DESC LIMIT $4`, app, q.From.UnixMicro(), q.To.UnixMicro(), maxRows+1)
	if err := h.Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("add up usage: %w", err)
	}
	if len(rows) > maxRows {
		return nil, agentsvc.NewInvalidError("group_by", "makes more than %d rows: ask for less time, or for fewer groups", maxRows)
	}
	return mergeUnpriced(rows), nil
}

// groupColumns returns the select list for the groups of q, or an error with [agentsvc.CodeInvalid]. The text comes from
// columnsByGroup alone, never from the caller.
func (q Query) groupColumns() (string, error) {
	if !q.From.Before(q.To) {
		return "", agentsvc.NewInvalidError("to", "must be after from")
	}
	columns := strings.Split("'', '', '', '', '', 0", ", ")
	for _, g := range q.By {
		native, ok := columnsByGroup[g]
		if !ok {
			return "", agentsvc.NewInvalidError("group_by", "%.40q is no group; there are %s", g, strings.Join(Groups, ", "))
		}
		for i, c := range strings.Split(native, ", ") {
			if c != "''" && c != "0" {
				columns[i] = c
			}
		}
	}
	return strings.Join(columns, ", "), nil
}

// mergeUnpriced adds a row without a currency, which has no money, to the preceding row of the same group. The query
// sorts "" last within a group.
func mergeUnpriced(rows []Sum) []Sum {
	var out []Sum
	for _, x := range rows {
		if n := len(out) - 1; n >= 0 && x.Currency == "" && hasSameGroup(out[n], x) {
			out[n].addSum(x)
			continue
		}
		out = append(out, x)
	}
	return out
}

// hasSameGroup reports whether two rows have the same grouping fields.
func hasSameGroup(x, y Sum) bool {
	return x.Agent == y.Agent && x.Provider == y.Provider && x.Model == y.Model && x.User == y.User && x.Key == y.Key && x.Day.Equal(y.Day)
}

// totalSums sums rows. Without any money the total has the given currency.
func totalSums(rows []Sum, currency string) Sum {
	money := map[string]ChargedAmount{}
	var t Sum
	for _, x := range rows {
		if m := money[x.Currency]; x.Currency != "" {
			money[x.Currency] = ChargedAmount{x.Currency, m.Cost.Add(x.Cost), m.Charge.Add(x.Charge)}
		}
		t.addSum(x)
	}
	if len(money) < 2 {
		t.Currency = cmp.Or(t.Currency, currency)
		return t
	}
	t.Cost, t.Charge, t.Currency = 0, 0, ""
	for _, name := range slices.Sorted(maps.Keys(money)) {
		t.Charges = append(t.Charges, money[name])
	}
	return t
}
