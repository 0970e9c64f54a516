package db

import "strings"

// Batch is a list of statements that take effect together or not at all. The zero value is empty and ready to use. A
// batch must not be changed while it is being executed.
type Batch struct {
	// Key orders the batches of a group, so that two processes lock the same rows in the same order and do not
	// deadlock. It is the id of the task that the batch is about.
	Key string
	// Shared, if not nil, has the same effect as the batch in statements that several batches of a group execute
	// together, as one statement over many rows. It is for batches that almost always find every row in the expected
	// state. If one does not, or a row to insert exists that [NewInsertTarget] does not skip, the shared statements fail,
	// nothing has happened, and each batch is executed with its own statements. It is used on PostgreSQL only.
	// docs/performance.md has the gain.
	Shared *Batch
	// StorageKind says what the batch adds to the tenant's stored data; the [Quota] may refuse it.
	StorageKind StorageKind

	stmts []stmt
	// writes is set if a statement may change rows. A batch that only reads uses a reading connection on SQLite.
	writes bool
}

// stmt is one statement of a batch. Either readRow is set (Query), or rowStmt and rows (InsertRows, ChangeRow), or
// neither (Exec).
type stmt struct {
	sql  string
	args []any
	// affected, if not nil, receives the number of affected rows.
	affected *int64
	readRow  func(Row) error

	// rowStmt is the statement that rows belong to. Rows of several batches with the same rowStmt are merged into one
	// statement on PostgreSQL.
	rowStmt *rowStatement
	rows    [][]any
}

// Exec adds a statement. If n is not nil it receives the number of rows that the statement affected.
func (b *Batch) Exec(n *int64, sql string, args ...any) {
	b.writes = true
	b.addStatement(stmt{sql: sql, args: args, affected: n})
}

// Append adds the statements of other, which may be nil, to b and to b.Shared.
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

// IsEmpty reports whether b has no statements.
func (b *Batch) IsEmpty() bool { return len(b.stmts) == 0 }

// Query adds a statement and calls read for each row of its result. An error of read is returned by Do or Write but
// does not undo the batch. Rows that read was given count only if Do or Write returns nil: the commit follows them and may
// fail. In a [Handle.Write] the rows may be read a second time from the start, when a group is repeated: there read must
// assign and never append.
func (b *Batch) Query(read func(Row) error, sql string, args ...any) {
	if !strings.HasPrefix(sql, "SELECT") {
		b.writes = true
	}
	b.addStatement(stmt{sql: sql, args: args, readRow: read})
}

// addStatement adds s. Most batches have four or five statements.
func (b *Batch) addStatement(s stmt) {
	if b.stmts == nil {
		b.stmts = make([]stmt, 0, 5)
	}
	b.stmts = append(b.stmts, s)
}
