package db

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Into says where the rows go that [Batch.Insert] adds.
type Into struct {
	rows
	one string // inserts a row, whose values are its arguments
}

// rows is a statement of PostgreSQL about rows, whose columns are its arguments.
type rows struct {
	columns []column // those that rows have values of
	sql     string
	// In a group that can be written again: where not all rows are new or as they are said to be, shared fails.
	shared string
	told   bool // shared returns the numbers of the rows that somebody is to be told of
}

type column struct{ name, kind string }

// NewInto describes rows of table. Columns are separated by commas: each is its name and its type, TEXT, BIGINT or BOOLEAN,
// for a string, int64 or bool, or, where all rows have the same, its name, " = " and an expression.
// A row is left out where there is one already that has the same in the columns that unique names, if it names any.
func NewInto(table, columns, unique string) *Into {
	in := &Into{}
	var names, one, many, fixed, same []string
	for c := range strings.SplitSeq(columns, ",") {
		name, expr, constant := strings.Cut(strings.TrimSpace(c), " = ")
		if constant {
			fixed, same = append(fixed, name), append(same, expr)
			continue
		}
		names, one, many = append(names, in.add(name)), append(one, "$"+strconv.Itoa(len(in.columns))), append(many, "unnest("+in.list()+")")
	}
	list := func(a, b []string) string { return strings.Join(slices.Concat(a, b), ", ") }
	into, kept := "INSERT INTO "+table+" ("+list(names, fixed)+") ", ""
	if unique != "" {
		kept = " ON CONFLICT (" + unique + ") DO NOTHING"
	}
	in.one = into + "VALUES (" + list(one, same) + ")" + kept
	in.shared = into + "SELECT " + list(many, same)
	in.sql = in.shared + kept
	return in
}

// add adds a column, given by its name and its type, and returns its name.
func (s *rows) add(text string) string {
	name, kind, _ := strings.Cut(strings.TrimSpace(text), " ")
	s.columns = append(s.columns, column{name, kind})
	return name
}

// list is the argument that holds the last column's values.
func (s *rows) list() string {
	last := len(s.columns)
	return "CAST($" + strconv.Itoa(last) + " AS " + s.columns[last-1].kind + "[])"
}

// SQL returns the statement that inserts one row. Its arguments are the row's values.
func (in *Into) SQL() string { return in.one }

// Insert adds rows, each of which has its values in the order of in's columns. In a [Handle.Write] they take effect where they
// stand in the batch, or before: on PostgreSQL one statement inserts what all batches of a group and of the same tenant
// insert into the same, for to begin and end a statement takes longer than a row.
func (b *Batch) Insert(in *Into, rows ...[]any) {
	if len(rows) == 0 {
		return
	}
	b.add(stmt{sql: in.one, about: &in.rows, rows: rows})
}

// add adds a statement about rows.
func (b *Batch) add(s stmt) {
	for _, row := range s.rows {
		s.about.check(row)
	}
	b.writes = true
	b.stmts = append(b.stmts, s)
}

// check panics where row is none of in's, which is its writer's mistake: others of the group would be the ones to pay for it.
func (s *rows) check(row []any) {
	if len(row) != len(s.columns) {
		panic(fmt.Sprintf("%s: %d values", s.shared, len(row)))
	}
	for i, c := range s.columns {
		if !c.holds(row[i]) {
			panic(fmt.Sprintf("%s: %s is a %T", s.shared, c.name, row[i]))
		}
	}
}

func (c column) holds(v any) bool {
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

// args returns the columns of rows.
func (s *rows) args(rows [][]any) []any {
	args := make([]any, len(s.columns))
	for i, c := range s.columns {
		switch c.kind {
		case "TEXT":
			args[i] = values[string](rows, i)
		case "BIGINT":
			args[i] = values[int64](rows, i)
		default:
			args[i] = values[bool](rows, i)
		}
	}
	return args
}

func values[T any](rows [][]any, column int) []T {
	vs := make([]T, len(rows))
	for i, row := range rows {
		vs[i] = row[column].(T)
	}
	return vs
}
