package billing

import (
	"math"
	"strings"
	"time"
)

// The largest values that a usage row may have. A model or tool that reports more is wrong, and the sums would lose
// their meaning. With MaxTokens, a sum of 64 bits holds eight million calls of the largest size.
const (
	// MaxTokens bounds each kind of tokens, and the counts of calls, runs and texts.
	MaxTokens = 1 << 40
	// MaxStoredBytes bounds [Quantities.StoredBytes].
	MaxStoredBytes = 1 << 53
	// MaxRunTime bounds the run time of one attempt.
	MaxRunTime = 365 * 24 * time.Hour
	// MaxUsagePrice bounds cost and charge of a row, in nano-units: a hundred million of a currency.
	MaxUsagePrice = 100_000_000_000_000_000
)

// maxSum is the largest value of any sum. A larger sum is reported, charged and counted as maxSum.
const maxSum = math.MaxInt64

// clampToLimits returns q with each quantity between 0 and its bound.
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

// clampToLimits returns w with cost and charge at most MaxUsagePrice.
func (w UsagePrice) clampToLimits() UsagePrice {
	w.Cost, w.Charge = min(w.Cost, MaxUsagePrice), min(w.Charge, MaxUsagePrice)
	return w
}

// addCapped returns a + b, limited to the range from -maxSum to maxSum. It relies on the wrap-around of Go's signed
// integers.
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

// subtractCapped returns a - b, limited as by addCapped. The smallest int64 has no negative, hence the max.
func subtractCapped(a, b int64) int64 { return addCapped(a, -max(b, -maxSum)) }

// durationFromMicros converts a column of microseconds; a sum that does not fit a [time.Duration] becomes the largest
// that does.
func durationFromMicros(micros int64) time.Duration {
	return time.Duration(min(micros, maxSum/int64(time.Microsecond))) * time.Microsecond
}

// sumsSQL returns a select list with the sum of each column, see sumSQL.
func sumsSQL(columns ...string) string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = sumSQL(c)
	}
	return strings.Join(list, ", ")
}

// sumSQL returns an SQL expression for the sum of x, which yields 64-bit integers. The result is exact, or maxSum or
// -maxSum if it does not fit. A plain SUM would fail on SQLite and have type NUMERIC on PostgreSQL. It sums the upper
// and the lower 32 bits separately, which cannot overflow for up to 2^31 rows. Without rows it is NULL.
func sumSQL(x string) string {
	wide := "CAST(" + x + " AS BIGINT)"
	upper, lower := "CAST(SUM("+wide+" >> 32) AS BIGINT)", "CAST(SUM("+wide+" & 4294967295) AS BIGINT)"
	carried := "(" + upper + " + (" + lower + " >> 32))"
	return "CASE WHEN " + carried + " > 2147483647 THEN 9223372036854775807 WHEN " + carried + " < -2147483648 THEN -9223372036854775807 ELSE (" +
		carried + " << 32) + (" + lower + " & 4294967295) END"
}

// sumOrZeroSQL is sumSQL with 0 instead of NULL where there are no rows.
func sumOrZeroSQL(x string) string { return "COALESCE(" + sumSQL(x) + ", 0)" }

// addCappedSQL returns an SQL expression for column + n, at most maxSum. Neither may be negative.
func addCappedSQL(column, n string) string {
	return "CASE WHEN " + column + " > 9223372036854775807 - " + n + " THEN 9223372036854775807 ELSE " + column + " + " + n + " END"
}
