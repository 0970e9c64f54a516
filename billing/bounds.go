package billing

import (
	"math"
	"strings"
	"time"
)

// The most that is written down in a usage row. What a model or a tool reports beyond that is wrong, and would make the sums that
// it is part of say nothing: a sum of 64 bits has room for eight million calls of the largest size.
const (
	MaxTokens      = 1 << 40                 // of each kind; also of calls, runs and texts
	MaxStoredBytes = 1 << 53                 // bytes
	MaxRunTime     = 365 * 24 * time.Hour    // of one attempt
	MaxUsagePrice  = 100_000_000_000_000_000 // nano-units: a hundred million of a currency
)

// maxSum is what any sum comes to at most. Rows whose sum is larger are shown, charged and counted as this.
const maxSum = math.MaxInt64

// clampToLimits returns q within what a row may hold.
func (q Quantities) clampToLimits() Quantities {
	for _, n := range []*int64{
		&q.InputTokens, &q.OutputTokens, &q.CacheReadTokens, &q.CacheWriteTokens, &q.ReasoningTokens, &q.ModelCalls, &q.ToolCalls, &q.Runs, &q.Embeddings,
	} {
		*n = min(max(0, *n), MaxTokens)
	}
	q.RunTime = min(max(0, q.RunTime), MaxRunTime)
	q.StoredBytes = min(max(0, q.StoredBytes), MaxStoredBytes)
	return q
}

// clampToLimits returns w within what a row may hold.
func (w UsagePrice) clampToLimits() UsagePrice {
	w.Cost, w.Charge = min(w.Cost, MaxUsagePrice), min(w.Charge, MaxUsagePrice)
	return w
}

// addCapped returns a + b, at most maxSum and at least -maxSum.
func addCapped(a, b int64) int64 {
	switch sum := a + b; {
	case a > 0 && b > 0 && sum <= 0:
		return maxSum
	case a < 0 && b < 0 && (sum >= 0 || sum == math.MinInt64):
		return -maxSum
	default:
		return sum
	}
}

// subtractCapped returns a - b, as more does.
func subtractCapped(a, b int64) int64 { return addCapped(a, -max(b, -maxSum)) }

// durationFromMicros is the time of a column that holds microseconds.
func durationFromMicros(micros int64) time.Duration {
	return time.Duration(min(micros, maxSum/int64(time.Microsecond))) * time.Microsecond
}

// sumsSQL is SQL that adds up columns of whole numbers, see [sumSQL].
func sumsSQL(columns ...string) string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = sumSQL(c)
	}
	return strings.Join(list, ", ")
}

// sumSQL is SQL that adds up x, which yields whole numbers of 64 bits. The sum is exact, and maxSum or -maxSum where it does not fit:
// the statement does not fail on either engine, whatever the rows hold, for up to 2^31 rows. It adds up the upper and the lower
// 32 bits apart.
func sumSQL(x string) string {
	wide := "CAST(" + x + " AS BIGINT)"
	upper, lower := "CAST(SUM("+wide+" >> 32) AS BIGINT)", "CAST(SUM("+wide+" & 4294967295) AS BIGINT)"
	carried := "(" + upper + " + (" + lower + " >> 32))"
	return "CASE WHEN " + carried + " > 2147483647 THEN 9223372036854775807 WHEN " + carried + " < -2147483648 THEN -9223372036854775807 ELSE (" +
		carried + " << 32) + (" + lower + " & 4294967295) END"
}

// sumOrZeroSQL is [sumSQL], 0 where there are no rows.
func sumOrZeroSQL(x string) string { return "COALESCE(" + sumSQL(x) + ", 0)" }

// addCappedSQL is SQL that adds what is not negative to a column that is not, at most to maxSum.
func addCappedSQL(column, n string) string {
	return "CASE WHEN " + column + " > 9223372036854775807 - " + n + " THEN 9223372036854775807 ELSE " + column + " + " + n + " END"
}
