package db

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// InsertTarget says where the rows go that [Batch.InsertRows] adds.
type InsertTarget struct {
	rowStatement
	insertOne string // inserts a row, whose values are its arguments
}

// rowStatement is a statement of PostgreSQL about rows, whose columns are its arguments.
type rowStatement struct {
	columns []column // those that rows have values of
	sql     string
	// In a group that can be written again: where not all rows are new or as they are said to be, shared fails.
	shared     string
	returnsRow bool // shared returns the numbers of the rows that somebody is to be told of
}

type column struct{ name, kind string }

// NewInsertTarget describes rows of table. Columns are separated by commas: each is its name and its type, TEXT, BIGINT or BOOLEAN,
// for a string, int64 or bool, or, where all rows have the same, its name, " = " and an expression.
// A row is left out where there is one already that has the same in the columns that unique names, if it names any.
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
	in.shared = into + "SELECT " + list(many, same)
	in.sql = in.shared + extra
	return in
}

// addColumn adds a column, given by its name and its type, and returns its name.
func (s *rowStatement) addColumn(text string) string {
	name, kind, _ := strings.Cut(strings.TrimSpace(text), " ")
	s.columns = append(s.columns, column{name, kind})
	return name
}

// arrayArg is the argument that holds the last column's values.
func (s *rowStatement) arrayArg() string {
	last := len(s.columns)
	return "CAST($" + strconv.Itoa(last) + " AS " + s.columns[last-1].kind + "[])"
}

// SQL returns the statement that inserts one row. Its arguments are the row's values.
func (in *InsertTarget) SQL() string { return in.insertOne }

// InsertRows adds rows, each of which has its values in the order of in's columns. In a [Handle.Write] they take effect where they
// stand in the batch, or before: on PostgreSQL one statement inserts what all batches of a group and of the same tenant
// insert into the same, for to begin and end a statement takes longer than a row.
func (b *Batch) InsertRows(in *InsertTarget, rows ...[]any) {
	if len(rows) == 0 {
		return
	}
	b.addRowStatement(stmt{sql: in.insertOne, rowStmt: &in.rowStatement, rows: rows})
}

// addRowStatement adds a statement about rows.
func (b *Batch) addRowStatement(s stmt) {
	for _, row := range s.rows {
		s.rowStmt.checkRow(row)
	}
	b.writes = true
	b.stmts = append(b.stmts, s)
}

// checkRow panics where row is none of in's, which is its writer's mistake: others of the group would be the ones to pay for it.
func (s *rowStatement) checkRow(row []any) {
	if len(row) != len(s.columns) {
		panic(fmt.Sprintf("%s: %d values", s.shared, len(row)))
	}
	for i, c := range s.columns {
		if !c.canHold(row[i]) {
			panic(fmt.Sprintf("%s: %s is a %T", s.shared, c.name, row[i]))
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
	}
	return false
}

// columnArgs returns the columns of rows.
func (s *rowStatement) columnArgs(rows [][]any) []any {
	args := make([]any, len(s.columns))
	for i, c := range s.columns {
		switch c.kind {
		case "TEXT":
			args[i] = columnValues[string](rows, i)
		case "BIGINT":
			args[i] = columnValues[int64](rows, i)
		default:
			args[i] = columnValues[bool](rows, i)
		}
	}
	return args
}

func columnValues[T any](rows [][]any, column int) []T {
	vs := make([]T, len(rows))
	for i, row := range rows {
		vs[i] = row[column].(T)
	}
	return vs
}
