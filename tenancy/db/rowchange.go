package db

import (
	"strconv"
	"strings"
)

// RowChange says how the rows change that [Batch.Change] names, in a statement of PostgreSQL that several batches share.
type RowChange struct{ rowStatement }

// NewRowChange describes a change of rows of table. Columns are those of [NewInsertTarget]; key are those of them that make a row of the
// table what it is, set says what becomes of it, and where what it must be, both with v for what is given. Where a row is not
// there or not so, the group goes on without what it shares.
func NewRowChange(table, key, columns, set, where string) *RowChange {
	c := newRowChange(table, key, columns, set)
	c.shared = "WITH t AS (" + c.shared + " AND " + where + " RETURNING 1) SELECT 1 / CAST(COUNT(*) = " + c.countArg() + " AS INTEGER) FROM t"
	return c
}

// NewReturningChange is [NewRowChange] where a row may be missing, and where those count for which told is true when they are changed.
func NewReturningChange(table, key, columns, set, reported string) *RowChange {
	c := newRowChange(table, key, columns, set)
	c.shared = "WITH t AS (" + c.shared + " RETURNING v.n, " + reported + " AS told) SELECT n FROM t WHERE told"
	c.returnsRow = true
	return c
}

// newRowChange looks each row up by its whole key and goes to the place where it is. A plain join of a young table, of which there
// are no statistics, or of one with many small tenants would be planned to read all rows of the tenant; a lookup that cannot be
// pulled up (OFFSET 0), of rows that are taken to be few (a LIMIT that is not known yet), is not.
func newRowChange(table, key, columns, set string) *RowChange {
	c := &RowChange{}
	var names, lists, same []string
	for column := range strings.SplitSeq(columns, ",") {
		names, lists = append(names, c.addColumn(column)), append(lists, c.arrayArg())
	}
	for k := range strings.SplitSeq(key, ", ") {
		same = append(same, "o."+k+" = v."+k)
	}
	c.shared = "UPDATE " + table + " SET " + set + " FROM (SELECT v.*, o.ctid AS place FROM unnest(" + strings.Join(lists, ", ") +
		") WITH ORDINALITY AS v(" + strings.Join(names, ", ") + ", n) CROSS JOIN LATERAL (SELECT ctid FROM " + table + " AS o WHERE " +
		strings.Join(same, " AND ") + " OFFSET 0) AS o LIMIT " + c.countArg() + ") AS v WHERE " + table + ".ctid = v.place"
	return c
}

// countArg is the argument behind the columns: how many rows there are.
func (c *RowChange) countArg() string {
	return "CAST($" + strconv.Itoa(len(c.columns)+1) + " AS BIGINT)"
}

// ChangeRow adds the change of a row to what others share: it is for [Batch.Shared] alone. n receives 1, or, of a change that
// tells, whether it is to be told.
func (b *Batch) ChangeRow(n *int64, c *RowChange, row []any) {
	b.addRowStatement(stmt{sql: c.shared, rowStmt: &c.rowStatement, rows: [][]any{row}, affected: n})
}
