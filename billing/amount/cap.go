package amount

import (
	"math"
	"strings"
	"time"
)

// maxSum is the largest value of any sum. A larger sum is reported, charged and counted as maxSum.
const maxSum = math.MaxInt64

// Add returns a + b, limited to the range from -maxSum to maxSum. It relies on the wrap-around of Go's signed
// integers.
func Add(a, b int64) int64 {
	switch sum := a + b; {
	case a > 0 && b > 0 && sum <= 0:
		return maxSum
	case a < 0 && b < 0 && (sum >= 0 || sum == math.MinInt64):
		return -maxSum
	default:
		return sum
	}
}

// Subtract returns a - b, limited as by Add. The smallest int64 has no negative, hence the max.
func Subtract(a, b int64) int64 { return Add(a, -max(b, -maxSum)) }

// Duration converts a column of microseconds; a sum that does not fit a [time.Duration] becomes the largest
// that does.
func Duration(micros int64) time.Duration {
	return time.Duration(min(micros, maxSum/int64(time.Microsecond))) * time.Microsecond
}

// SumsSQL returns a select list with the sum of each column, see SumSQL.
func SumsSQL(columns ...string) string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = SumSQL(c)
	}
	return strings.Join(list, ", ")
}

// SumSQL returns an SQL expression for the sum of x, which yields 64-bit integers. The result is exact, or maxSum or
// -maxSum if it does not fit. A plain SUM would fail on SQLite and have type NUMERIC on PostgreSQL. It sums the upper
// and the lower 32 bits separately, which cannot overflow for up to 2^31 rows. Without rows it is NULL.
func SumSQL(x string) string {
	wide := "CAST(" + x + " AS BIGINT)"
	upper, lower := "CAST(SUM("+wide+" >> 32) AS BIGINT)", "CAST(SUM("+wide+" & 4294967295) AS BIGINT)"
	carried := "(" + upper + " + (" + lower + " >> 32))"
	return "CASE WHEN " + carried + " > 2147483647 THEN 9223372036854775807 WHEN " + carried + " < -2147483648 THEN -9223372036854775807 ELSE (" +
		carried + " << 32) + (" + lower + " & 4294967295) END"
}

// SumOrZeroSQL is SumSQL with 0 instead of NULL where there are no rows.
func SumOrZeroSQL(x string) string { return "COALESCE(" + SumSQL(x) + ", 0)" }

// AddSQL returns an SQL expression for column + n, at most maxSum. Neither may be negative.
func AddSQL(column, n string) string {
	return "CASE WHEN " + column + " > 9223372036854775807 - " + n + " THEN 9223372036854775807 ELSE " + column + " + " + n + " END"
}

// CeilDiv returns n ÷ unit, rounded up. n must not be negative.
func CeilDiv(n, unit int64) int64 { return n/unit + min(1, n%unit) }

// Multiply returns a × b, at most the largest value that fits. Neither may be negative.
func Multiply(a, b int64) int64 {
	if b != 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}
