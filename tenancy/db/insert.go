package db

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Into says where the rows go that [Batch.Insert] adds.
type Into struct {
	columns []column // those that rows have values of
	one     string   // inserts a row, whose values are its arguments
	many    string   // inserts the rows whose columns are its arguments, on PostgreSQL
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
		name, kind, _ := strings.Cut(name, " ")
		in.columns = append(in.columns, column{name, kind})
		p := "$" + strconv.Itoa(len(in.columns))
		names, one, many = append(names, name), append(one, p), append(many, "unnest(CAST("+p+" AS "+kind+"[]))")
	}
	list := func(a, b []string) string { return strings.Join(slices.Concat(a, b), ", ") }
	into, kept := "INSERT INTO "+table+" ("+list(names, fixed)+") ", ""
	if unique != "" {
		kept = " ON CONFLICT (" + unique + ") DO NOTHING"
	}
	in.one = into + "VALUES (" + list(one, same) + ")" + kept
	in.many = into + "SELECT " + list(many, same) + kept
	return in
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
	for _, row := range rows {
		in.check(row)
	}
	b.writes = true
	b.stmts = append(b.stmts, stmt{sql: in.one, into: in, rows: rows})
}

// check panics where row is none of in's, which is its writer's mistake: others of the group would be the ones to pay for it.
func (in *Into) check(row []any) {
	if len(row) != len(in.columns) {
		panic(fmt.Sprintf("%s: %d values", in.one, len(row)))
	}
	for i, c := range in.columns {
		if !c.holds(row[i]) {
			panic(fmt.Sprintf("%s: %s is a %T", in.one, c.name, row[i]))
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

// lists returns the columns of rows, the arguments of the statement that inserts many.
func (in *Into) lists(rows [][]any) []any {
	args := make([]any, len(in.columns))
	for i, c := range in.columns {
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
