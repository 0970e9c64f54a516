package db

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
)

// runBatch executes c alone: on a reading connection if it only reads, else on the writing one.
func (e *sqliteEngine) runBatch(ctx context.Context, c *pendingBatch) error {
	if !c.batch.writes && e.readDB != nil {
		if e.tenantFile != nil {
			return e.readTenantSnapshot(ctx, c)
		}
		return e.readSnapshot(ctx, c)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c.ctx = ctx
	return cmp.Or(e.runAlone(c), c.readErr)
}

// runAlone executes c in a transaction of its own. The caller holds e.mu.
func (e *sqliteEngine) runAlone(c *pendingBatch) error {
	ctx, cancel := e.withTimeout(c.ctx)
	defer cancel()
	return e.runInTx(ctx, func() error { return e.applyBatch(ctx, c) })
}

// withTimeout returns the context of a batch's statements. On an external file they end with their caller and after
// maxDuration. On the platform's file they are not interrupted: they are short, and the driver does more work for a
// statement that can be cancelled.
func (e *sqliteEngine) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if e.maxDuration == 0 {
		return context.Background(), func() {}
	}
	if ctx == nil {
		ctx = context.Background()
	}
	return context.WithTimeout(ctx, e.maxDuration)
}

// readSnapshot executes the statements of c, which only read, in one transaction, so that they see one state of the
// database. A single statement needs no transaction.
func (e *sqliteEngine) readSnapshot(ctx context.Context, c *pendingBatch) error {
	if e.maxDuration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = e.withTimeout(ctx)
		defer cancel()
	}
	// Statements are prepared before the transaction begins: preparing takes a connection, and if every transaction
	// waited for a second connection while it holds its first, all would wait forever.
	prepared := make([]*sql.Stmt, len(c.batch.stmts))
	for i, s := range c.batch.stmts {
		var err error
		if prepared[i], err = e.prepareRead(ctx, s.sql); err != nil {
			return err
		}
	}
	if len(prepared) == 1 {
		return queryStmt(ctx, prepared[0], c.batch.stmts[0])
	}
	tx, err := e.readDB.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	for i, s := range c.batch.stmts {
		if err := queryStmt(ctx, tx.StmtContext(ctx, prepared[i]), s); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}

// prepareRead returns the prepared statement of the reading connections for text. Of two concurrent calls one closes
// its own.
func (e *sqliteEngine) prepareRead(ctx context.Context, text string) (*sql.Stmt, error) {
	if st, ok := e.readStmts.Load(text); ok {
		return st.(*sql.Stmt), nil
	}
	p, err := e.readDB.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	st, loaded := e.readStmts.LoadOrStore(text, p)
	if loaded {
		_ = p.Close()
	}
	return st.(*sql.Stmt), nil
}

// queryStmt executes a prepared statement and reads its rows. The result's first error wins, that of the read function
// included.
func queryStmt(ctx context.Context, prepared *sql.Stmt, s stmt) error {
	rows, err := prepared.QueryContext(ctx, s.args...)
	if err != nil {
		return err
	}
	return cmp.Or(readSQLiteRows(rows, s.readRow))
}

// readSQLiteRows calls read for each row. It returns an error of read, which must not undo the transaction, separately
// from one of the database.
func readSQLiteRows(rows *sql.Rows, read func(Row) error) (readErr, err error) {
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := read(rows); err != nil {
			return err, nil
		}
	}
	return nil, rows.Err()
}

// errGroupRolledBack reports that a failure undid the whole transaction and with it the savepoints, as a full disk
// does.
var errGroupRolledBack = errors.New("the transaction was rolled back")

// runGroup commits calls together. A savepoint around each batch undoes a failed one without affecting the others. If
// the transaction itself was undone, each batch is executed alone.
func (e *sqliteEngine) runGroup(calls []*pendingBatch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(calls) == 1 {
		calls[0].done <- cmp.Or(e.runAlone(calls[0]), calls[0].readErr)
		return
	}
	errs := make([]error, len(calls))
	ctx, cancel := e.withTimeout(context.Background())
	defer cancel()
	err := e.runInTx(ctx, func() error {
		for i, c := range calls {
			// The savepoints all have one name: they do not nest, each is released before the next one.
			if err := e.execSQL(ctx, "SAVEPOINT one"); err != nil {
				return err
			}
			if errs[i] = e.applyInGroup(c); errs[i] != nil {
				if e.execSQL(ctx, "ROLLBACK TO one") != nil {
					return errGroupRolledBack
				}
			}
			if err := e.execSQL(ctx, "RELEASE one"); err != nil {
				return err
			}
		}
		return nil
	})
	for i, c := range calls {
		if errors.Is(err, errGroupRolledBack) {
			c.done <- cmp.Or(e.runAlone(c), c.readErr)
			continue
		}
		c.done <- cmp.Or(err, errs[i], c.readErr)
	}
}

// applyInGroup executes one batch of a group with its own timeout.
func (e *sqliteEngine) applyInGroup(c *pendingBatch) error {
	ctx, cancel := e.withTimeout(c.ctx)
	defer cancel()
	return e.applyBatch(ctx, c)
}

// runInTx runs f in a transaction of the writing connection, which ends even if f panics. BEGIN IMMEDIATE takes the
// write lock at once, since a reading transaction that begins to write later can fail with SQLITE_BUSY. For a tenant's
// file the schema is checked first. The caller holds e.mu.
func (e *sqliteEngine) runInTx(ctx context.Context, f func() error) error {
	if err := e.execSQL(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	committed := false
	defer func() {
		if !committed {
			_ = e.execSQL(context.Background(), "ROLLBACK") // fails if SQLite has rolled back already
		}
	}()
	var err error
	if e.tenantFile != nil {
		err = e.tenantFile.checkSchema(func(read func(Row) error, text string) error { return cmp.Or(e.queryRows(ctx, read, text, nil)) })
	}
	if err == nil {
		err = f()
	}
	if err == nil {
		err = e.execSQL(context.Background(), "COMMIT")
	}
	committed = err == nil
	return err
}

// applyBatch executes the own statements of c, never the shared form, and row by row: on SQLite a statement has no
// round trip that merging could save. The caller holds e.mu.
func (e *sqliteEngine) applyBatch(ctx context.Context, c *pendingBatch) error {
	for _, s := range c.batch.stmts {
		for _, row := range s.rows {
			if _, err := e.execArgs(ctx, s.sql, row); err != nil {
				return err
			}
		}
		if s.rowStmt != nil {
			continue
		}
		if s.readRow != nil {
			readErr, err := e.queryRows(ctx, c.rowReader(s), s.sql, s.args)
			if err != nil {
				return err
			}
			c.readErr = cmp.Or(c.readErr, readErr)
			continue
		}
		n, err := e.execArgs(ctx, s.sql, s.args)
		if err != nil {
			return err
		}
		c.setRowCount(s.affected, n)
	}
	return nil
}

func (e *sqliteEngine) execSQL(ctx context.Context, sql string) error {
	_, err := e.execArgs(ctx, sql, nil)
	return err
}

// execArgs executes a statement on the writing connection and returns the number of affected rows. The caller holds
// e.mu.
func (e *sqliteEngine) execArgs(ctx context.Context, sql string, args []any) (int64, error) {
	st, err := e.prepareWrite(ctx, sql)
	if err != nil {
		return 0, err
	}
	res, err := st.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// queryRows executes a query on the writing connection, so that it sees the transaction's own writes. The caller holds
// e.mu.
func (e *sqliteEngine) queryRows(ctx context.Context, read func(Row) error, sql string, args []any) (readErr, err error) {
	st, err := e.prepareWrite(ctx, sql)
	if err != nil {
		return nil, err
	}
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return nil, err
	}
	return readSQLiteRows(rows, read)
}

// prepareWrite returns the prepared statement of the writing connection for sql. The caller holds e.mu.
func (e *sqliteEngine) prepareWrite(ctx context.Context, sql string) (*sql.Stmt, error) {
	if st, ok := e.writeStmts[sql]; ok {
		return st, nil
	}
	st, err := e.writeConn.PrepareContext(ctx, sql)
	if err == nil {
		e.writeStmts[sql] = st
	}
	return st, err
}

// runTx runs f in a transaction of the writing connection, which no other write can use meanwhile. SQLite has no roles,
// so role and tenant are ignored.
func (e *sqliteEngine) runTx(ctx context.Context, _ string, _ ID, f func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	ctx, cancel := e.withTimeout(ctx)
	defer cancel()
	return e.runInTx(ctx, func() error {
		return f(&Tx{
			exec: func(_ context.Context, sql string, args []any) (int64, error) { return e.execArgs(ctx, sql, args) },
			query: func(_ context.Context, read func(Row) error, sql string, args []any) error {
				return cmp.Or(e.queryRows(ctx, read, sql, args))
			},
		})
	})
}

// readTx runs f in a transaction of a reading connection. A database in memory has only the writing one. The transaction
// is always undone: it has nothing to commit.
func (e *sqliteEngine) readTx(ctx context.Context, role string, tenant ID, f func(*Tx) error) error {
	if e.readDB == nil {
		return e.runTx(ctx, role, tenant, f)
	}
	tx, err := e.readDB.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	return f(&Tx{
		exec: func(context.Context, string, []any) (int64, error) {
			return 0, errors.New("a statement that writes in a transaction that only reads")
		},
		query: func(ctx context.Context, read func(Row) error, text string, args []any) error {
			rows, err := tx.QueryContext(ctx, text, args...)
			if err != nil {
				return err
			}
			return cmp.Or(readSQLiteRows(rows, read))
		},
	})
}
