package db

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// InsertTarget describes the rows that [Batch.InsertRows] adds to one table. It is made once, at package
// initialisation, and its identity is what lets rows of several batches be merged.
type InsertTarget struct {
	rowStatement
	// insertOne inserts one row, whose values are its arguments.
	insertOne string
}

// rowStatement is a statement about any number of rows. On PostgreSQL its arguments are one array per column.
type rowStatement struct {
	// columns are the columns whose values a row has, in order.
	columns []column
	sql     string
	// isChange marks a [RowChange], whose last argument is the number of rows.
	isChange bool
	// returnsRow means that a row change returns the ordinal numbers, from 1, of the rows whose affected count becomes 1.
	returnsRow bool
}

type column struct{ name, kind string }

// NewInsertTarget describes rows of table. columns is a list separated by commas; each element is a name and a type
// (TEXT, BIGINT, BOOLEAN or BYTEA, for a string, int64, bool or []byte), or, if all rows have the same value, a name, " = "
// and an expression. If unique names columns, a row is skipped if one with the same values in these columns exists.
func NewInsertTarget(table, columns, unique string) *InsertTarget {
	in := &InsertTarget{}
	var names, one, many, fixed, same []string
	for c := range strings.SplitSeq(columns, ",") {
		name, expr, constant := strings.Cut(strings.TrimSpace(c), " = ")
		if constant {
			fixed, same = append(fixed, name), append(same, expr)
			continue
		}
		names, one, many = append(names, in.addColumn(name)), append(one, "$"+strconv.Itoa(len(in.columns))), append(many, "unnest("+in.arrayArg()+")")
	}
	list := func(a, b []string) string { return strings.Join(slices.Concat(a, b), ", ") }
	into, extra := "INSERT INTO "+table+" ("+list(names, fixed)+") ", ""
	if unique != "" {
		extra = " ON CONFLICT (" + unique + ") DO NOTHING"
	}
	in.insertOne = into + "VALUES (" + list(one, same) + ")" + extra
	in.sql = into + "SELECT " + list(many, same) + extra
	return in
}

// addColumn adds a column, given as name and type, and returns its name.
func (s *rowStatement) addColumn(text string) string {
	name, kind, _ := strings.Cut(strings.TrimSpace(text), " ")
	s.columns = append(s.columns, column{name, kind})
	return name
}

// arrayArg is the SQL expression of the array with the last column's values.
func (s *rowStatement) arrayArg() string {
	last := len(s.columns)
	return "CAST($" + strconv.Itoa(last) + " AS " + s.columns[last-1].kind + "[])"
}

// SQL returns the statement that inserts one row, whose arguments are the row's values.
func (in *InsertTarget) SQL() string { return in.insertOne }

// InsertRows adds rows, each with its values in the order of the columns of in. In a [Handle.Write] on PostgreSQL one
// statement inserts the rows that all batches of a group and tenant insert into the same target, because starting and
// ending a statement takes longer than inserting a row. They may therefore be inserted earlier than their place in the
// batch.
func (b *Batch) InsertRows(in *InsertTarget, rows ...[]any) {
	if len(rows) == 0 {
		return
	}
	b.addRowStatement(stmt{sql: in.insertOne, rowStmt: &in.rowStatement, rows: rows})
}

// addRowStatement adds a statement about rows after checking their types.
func (b *Batch) addRowStatement(s stmt) {
	for _, row := range s.rows {
		s.rowStmt.checkRow(row)
	}
	b.writes = true
	b.addStatement(s)
}

// checkRow panics if row does not fit the columns. It is a mistake in the calling code, found here because in a merged
// statement it would make the batches of other callers fail.
func (s *rowStatement) checkRow(row []any) {
	if len(row) != len(s.columns) {
		panic(fmt.Sprintf("%s: %d values", s.sql, len(row)))
	}
	for i, c := range s.columns {
		if !c.canHold(row[i]) {
			panic(fmt.Sprintf("%s: %s is a %T", s.sql, c.name, row[i]))
		}
	}
}

func (c column) canHold(v any) bool {
	switch v.(type) {
	case string:
		return c.kind == "TEXT"
	case int64:
		return c.kind == "BIGINT"
	case bool:
		return c.kind == "BOOLEAN"
	case []byte:
		return c.kind == "BYTEA"
	}
	return false
}

// columnArgs returns the arguments of the merged statement, a [rowColumn] each, with capacity for one more.
func (s *rowStatement) columnArgs(rows [][]any) []any {
	args := make([]any, len(s.columns), len(s.columns)+1)
	for i, c := range s.columns {
		switch c.kind {
		case "TEXT":
			args[i] = &rowColumn[string]{rows, i}
		case "BIGINT":
			args[i] = &rowColumn[int64]{rows, i}
		case "BYTEA":
			args[i] = &rowColumn[[]byte]{rows, i}
		default:
			args[i] = &rowColumn[bool]{rows, i}
		}
	}
	return args
}
