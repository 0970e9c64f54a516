package db

import "strings"

// Batch is a list of statements that take effect together. The zero value is empty and ready.
type Batch struct {
	// Key orders the batches of a group, so that two processes lock the same rows in the same order: the id of the
	// task the batch is about.
	Key string

	stmts  []stmt
	writes bool
}

type stmt struct {
	sql  string
	args []any
	n    *int64
	read func(Row) error

	into *Into // for which rows are, instead of args
	rows [][]any
}

// Exec adds a statement. Where n is not nil it receives how many rows the statement touched.
func (b *Batch) Exec(n *int64, sql string, args ...any) {
	b.writes = true
	b.stmts = append(b.stmts, stmt{sql: sql, args: args, n: n})
}

// Append adds the statements of other, which may be nil.
func (b *Batch) Append(other *Batch) {
	if other == nil {
		return
	}
	b.writes = b.writes || other.writes
	b.stmts = append(b.stmts, other.stmts...)
}

// Empty reports whether there is nothing to execute.
func (b *Batch) Empty() bool { return len(b.stmts) == 0 }

// Query adds a statement and calls read for each row of its result. An error of read is returned and undoes nothing.
// In a [Handle.Write] the rows may be read a second time from the start: there read assigns and never appends.
func (b *Batch) Query(read func(Row) error, sql string, args ...any) {
	if !strings.HasPrefix(sql, "SELECT") {
		b.writes = true
	}
	b.stmts = append(b.stmts, stmt{sql: sql, args: args, read: read})
}
