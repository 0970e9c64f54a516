package db

import "strings"

// Batch is a list of statements that take effect together. The zero value is empty and ready.
type Batch struct {
	// Key orders the batches of a group, so that two processes lock the same rows in the same order: the id of the
	// task the batch is about.
	Key string
	// Shared, where set, does what the batch does in statements that batches of one group have in common, and more cheaply for
	// it. It is for a batch that as good as always finds all as it should be: where one does not, or something is there that
	// another would insert, nothing has happened and each goes by its own statements. Only PostgreSQL takes it.
	Shared *Batch
	// StorageKind says what the batch adds to what its tenant stores, which the database's [Quota] may refuse.
	StorageKind StorageKind

	stmts  []stmt
	writes bool
}

type stmt struct {
	sql      string
	args     []any
	affected *int64
	readRow  func(Row) error

	rowStmt *rowStatement // of which these are, instead of args
	rows    [][]any
}

// Exec adds a statement. Where n is not nil it receives how many rows the statement touched.
func (b *Batch) Exec(n *int64, sql string, args ...any) {
	b.writes = true
	b.stmts = append(b.stmts, stmt{sql: sql, args: args, affected: n})
}

// Append adds the statements of other, which may be nil, to b and to what it shares.
func (b *Batch) Append(other *Batch) {
	if other == nil {
		return
	}
	if b.Shared != nil {
		b.Shared.Append(other)
	}
	b.writes = b.writes || other.writes
	b.stmts = append(b.stmts, other.stmts...)
}

// IsEmpty reports whether there is nothing to execute.
func (b *Batch) IsEmpty() bool { return len(b.stmts) == 0 }

// Query adds a statement and calls read for each row of its result. An error of read is returned and undoes nothing.
// In a [Handle.Write] the rows may be read a second time from the start: there read assigns and never appends.
func (b *Batch) Query(read func(Row) error, sql string, args ...any) {
	if !strings.HasPrefix(sql, "SELECT") {
		b.writes = true
	}
	b.stmts = append(b.stmts, stmt{sql: sql, args: args, readRow: read})
}
