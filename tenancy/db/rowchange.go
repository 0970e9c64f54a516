package db

import (
	"strconv"
	"strings"
)

// RowChange describes a change of the rows that [Batch.ChangeRow] names, as one statement of PostgreSQL for the rows of
// several batches. It exists only as a shared form.
type RowChange struct{ rowStatement }

// NewRowChange describes a change of rows of table. columns are as in [NewInsertTarget]; key names those columns,
// separated by ", ", that identify a row. set is the SET list and where the expected state, in both of which v.NAME is
// a given value. If a row is missing or not in the expected state, the statement divides by zero and the group falls
// back to the batches' own statements ([isPreconditionFailed]).
func NewRowChange(table, key, columns, set, where string) *RowChange {
	c := newRowChange(table, key, columns, set)
	c.sql = "WITH t AS (" + c.sql + " AND " + where + " RETURNING 1) SELECT 1 / CAST(COUNT(*) = " + c.countArg() + " AS INTEGER) FROM t"
	return c
}

// NewReturningChange is [NewRowChange] for changes where a row may be missing. The affected count becomes 1 for a row
// that is changed and for which the expression reported is true.
func NewReturningChange(table, key, columns, set, reported string) *RowChange {
	c := newRowChange(table, key, columns, set)
	c.sql = "WITH t AS (" + c.sql + " RETURNING v.n, " + reported + " AS reported) SELECT n FROM t WHERE reported"
	c.returnsRow = true
	return c
}

// newRowChange builds the UPDATE. It looks each row up by its whole key and then goes to its physical place (ctid). The
// planner must not turn this into a join: for a new table without statistics, or one with many small tenants, it would
// read all rows of the tenant. OFFSET 0 keeps the lookup from being pulled up into a join, and the LIMIT with a
// parameter makes the planner assume few rows (docs/decisions/shared-updates-by-ctid.md).
func newRowChange(table, key, columns, set string) *RowChange {
	c := &RowChange{rowStatement{isChange: true}}
	var names, lists, same []string
	for column := range strings.SplitSeq(columns, ",") {
		names, lists = append(names, c.addColumn(column)), append(lists, c.arrayArg())
	}
	for k := range strings.SplitSeq(key, ", ") {
		same = append(same, "o."+k+" = v."+k)
	}
	c.sql = "UPDATE " + table + " SET " + set + " FROM (SELECT v.*, o.ctid AS place FROM unnest(" + strings.Join(lists, ", ") +
		") WITH ORDINALITY AS v(" + strings.Join(names, ", ") + ", n) CROSS JOIN LATERAL (SELECT ctid FROM " + table + " AS o WHERE " +
		strings.Join(same, " AND ") + " OFFSET 0) AS o LIMIT " + c.countArg() + ") AS v WHERE " + table + ".ctid = v.place"
	return c
}

// countArg is the SQL expression of the argument after the columns: the number of rows.
func (c *RowChange) countArg() string {
	return "CAST($" + strconv.Itoa(len(c.columns)+1) + " AS BIGINT)"
}

// ChangeRow adds the change of a row to b, which must be the [Batch.Shared] of another batch. n, if not nil, receives
// 1, or for a [NewReturningChange] 1 only if the row is reported.
func (b *Batch) ChangeRow(n *int64, c *RowChange, row []any) {
	b.addRowStatement(stmt{sql: c.sql, rowStmt: &c.rowStatement, rows: [][]any{row}, affected: n})
}
