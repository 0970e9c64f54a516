package billing

import (
	"math"
	"strings"
	"time"
)

// The most that is written down in a usage row. What a model or a tool reports beyond that is wrong, and would make the sums that
// it is part of say nothing: a sum of 64 bits has room for eight million calls of the largest size.
const (
	MaxTokens = 1 << 40                 // of each kind; also of calls, runs and texts
	MaxStored = 1 << 53                 // bytes
	MaxWorked = 365 * 24 * time.Hour    // of one attempt
	MaxWorth  = 100_000_000_000_000_000 // nano-units: a hundred million of a currency
)

// maxSum is what any sum comes to at most. Rows whose sum is larger are shown, charged and counted as this.
const maxSum = math.MaxInt64

// bounded returns q within what a row may hold.
func (q Quantities) bounded() Quantities {
	for _, n := range []*int64{
		&q.InputTokens, &q.OutputTokens, &q.CacheReadTokens, &q.CacheWriteTokens, &q.ReasoningTokens, &q.ModelCalls, &q.ToolCalls, &q.Runs, &q.Embeddings,
	} {
		*n = min(max(0, *n), MaxTokens)
	}
	q.RunTime = min(max(0, q.RunTime), MaxWorked)
	q.StoredBytes = min(max(0, q.StoredBytes), MaxStored)
	return q
}

// bounded returns w within what a row may hold.
func (w Worth) bounded() Worth {
	w.Cost, w.Charge = min(w.Cost, MaxWorth), min(w.Charge, MaxWorth)
	return w
}

// more returns a + b, at most maxSum and at least -maxSum.
func more(a, b int64) int64 {
	switch sum := a + b; {
	case a > 0 && b > 0 && sum <= 0:
		return maxSum
	case a < 0 && b < 0 && (sum >= 0 || sum == math.MinInt64):
		return -maxSum
	default:
		return sum
	}
}

// less returns a - b, as more does.
func less(a, b int64) int64 { return more(a, -max(b, -maxSum)) }

// worked is the time of a column that holds microseconds.
func worked(micros int64) time.Duration {
	return time.Duration(min(micros, maxSum/int64(time.Microsecond))) * time.Microsecond
}

// sums is SQL that adds up columns of whole numbers, see [sumOf].
func sums(columns ...string) string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = sumOf(c)
	}
	return strings.Join(list, ", ")
}

// sumOf is SQL that adds up x, which yields whole numbers of 64 bits. The sum is exact, and maxSum or -maxSum where it does not fit:
// the statement does not fail on either engine, whatever the rows hold, for up to 2^31 rows. It adds up the upper and the lower
// 32 bits apart.
func sumOf(x string) string {
	wide := "CAST(" + x + " AS BIGINT)"
	upper, lower := "CAST(SUM("+wide+" >> 32) AS BIGINT)", "CAST(SUM("+wide+" & 4294967295) AS BIGINT)"
	carried := "(" + upper + " + (" + lower + " >> 32))"
	return "CASE WHEN " + carried + " > 2147483647 THEN 9223372036854775807 WHEN " + carried + " < -2147483648 THEN -9223372036854775807 ELSE (" +
		carried + " << 32) + (" + lower + " & 4294967295) END"
}

// sumOrNone is [sumOf], 0 where there are no rows.
func sumOrNone(x string) string { return "COALESCE(" + sumOf(x) + ", 0)" }

// plusAtMost is SQL that adds what is not negative to a column that is not, at most to maxSum.
func plusAtMost(column, n string) string {
	return "CASE WHEN " + column + " > 9223372036854775807 - " + n + " THEN 9223372036854775807 ELSE " + column + " + " + n + " END"
}
