package db

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// InsertTarget describes the rows that [Batch.InsertRows] adds to one table. It is made once, at package
// initialisation, and its identity is what lets rows of several batches be merged.
type InsertTarget struct{ rowStatement }

// rowStatement is a statement about any number of rows.
type rowStatement struct {
	// columns are the columns whose values a row has, in order.
	columns []column
	// sql is the statement whose arguments are one array per column (PostgreSQL).
	sql string
	// values are the statements that insert one, two, ... rows, whose arguments are the values of the first row, then of
	// the next. For so few rows they take PostgreSQL up to a quarter less time than arrays. A [RowChange] has none.
	values []string
	// allNew, if not nil, inserts the same rows but fails if one of them exists, which saves the lookup that skips it.
	allNew *rowStatement
	// isChange marks a [RowChange], whose last argument is the number of rows.
	isChange bool
	// returnsRow means that a row change returns the ordinal numbers, from 1, of the rows whose affected count becomes 1.
	returnsRow bool
}

// maxValueRows is how many rows are inserted without arrays. Each number of rows is a prepared statement of its own.
const maxValueRows = 4

type column struct{ name, kind string }

// NewInsertTarget describes rows of table. columns is a list separated by commas; each element is a name and a type
// (TEXT, BIGINT, BOOLEAN or BYTEA, for a string, int64, bool or []byte), or, if all rows have the same value, a name, " = "
// and an expression. If unique names columns, a row is skipped if one with the same values in these columns exists.
func NewInsertTarget(table, columns, unique string) *InsertTarget {
	in := &InsertTarget{}
	var names, many, fixed, same []string
	for c := range strings.SplitSeq(columns, ",") {
		name, expr, constant := strings.Cut(strings.TrimSpace(c), " = ")
		if constant {
			fixed, same = append(fixed, name), append(same, expr)
			continue
		}
		names, many = append(names, in.addColumn(name)), append(many, "unnest("+in.arrayArg()+")")
	}
	list := func(a, b []string) string { return strings.Join(slices.Concat(a, b), ", ") }
	into := "INSERT INTO " + table + " (" + list(names, fixed) + ") "
	in.sql = into + "SELECT " + list(many, same)
	values, n := into+"VALUES ", 0
	for range maxValueRows {
		var row []string
		for range names {
			n++
			row = append(row, "$"+strconv.Itoa(n))
		}
		values += "(" + list(row, same) + ")"
		in.values = append(in.values, values)
		values += ", "
	}
	if unique != "" {
		allNew := in.rowStatement
		in.rowStatement = allNew.skipExisting(unique)
		in.allNew = &allNew
	}
	return in
}

// skipExisting returns the statement that skips a row if one with the same values in these columns exists.
func (s rowStatement) skipExisting(unique string) rowStatement {
	suffix := " ON CONFLICT (" + unique + ") DO NOTHING"
	s.sql += suffix
	s.values = slices.Clone(s.values)
	for i := range s.values {
		s.values[i] += suffix
	}
	return s
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
func (in *InsertTarget) SQL() string { return in.values[0] }

// InsertRows adds rows, each with its values in the order of the columns of in. In a [Handle.Write] on PostgreSQL one
// statement inserts the rows that all batches of a group and tenant insert into the same target, because starting and
// ending a statement takes longer than inserting a row. They may therefore be inserted earlier than their place in the
// batch.
func (b *Batch) InsertRows(in *InsertTarget, rows ...[]any) {
	if len(rows) == 0 {
		return
	}
	b.addRowStatement(stmt{sql: in.values[0], rowStmt: &in.rowStatement, rows: rows})
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

// mergeRows returns the statement about rows, and its arguments: the values of few rows to insert, otherwise an array per
// column, and for a row change the number of rows.
func (s *rowStatement) mergeRows(rows [][]any) (sql string, args []any) {
	if len(rows) <= len(s.values) {
		return s.values[len(rows)-1], slices.Concat(rows...)
	}
	args = s.columnArgs(rows)
	if s.isChange {
		args = append(args, int64(len(rows)))
	}
	return s.sql, args
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
