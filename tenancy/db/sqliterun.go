package db

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
)

func (l *sqliteEngine) runBatch(ctx context.Context, c *pendingBatch) error {
	if !c.batch.writes && l.readDB != nil {
		if l.tenantFile != nil {
			return l.readTenantSnapshot(ctx, c)
		}
		return l.readSnapshot(ctx, c)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.ctx = ctx
	return cmp.Or(l.runAlone(c), c.readErr)
}

// runAlone executes c in a transaction of its own. l.mu is held.
func (l *sqliteEngine) runAlone(c *pendingBatch) error {
	ctx, cancel := l.withTimeout(c.ctx)
	defer cancel()
	return l.runInTx(ctx, func() error { return l.applyBatch(ctx, c) })
}

// withTimeout returns the context of a call's statements: on a guest's file they end with their caller, and after the longest time.
// The platform's end by themselves, and a statement that can be interrupted costs more.
func (l *sqliteEngine) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.maxDuration == 0 {
		return context.Background(), func() {}
	}
	if ctx == nil {
		ctx = context.Background()
	}
	return context.WithTimeout(ctx, l.maxDuration)
}

// readSnapshot reads in one snapshot.
func (l *sqliteEngine) readSnapshot(ctx context.Context, c *pendingBatch) error {
	if l.maxDuration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = l.withTimeout(ctx)
		defer cancel()
	}
	// Prepared before the transaction begins: preparing takes a connection, and a transaction that waits for a second
	// one while it holds its first can wait for ever.
	prepared := make([]*sql.Stmt, len(c.batch.stmts))
	for i, s := range c.batch.stmts {
		var err error
		if prepared[i], err = l.prepareRead(ctx, s.sql); err != nil {
			return err
		}
	}
	if len(prepared) == 1 {
		return queryStmt(ctx, prepared[0], c.batch.stmts[0])
	}
	tx, err := l.readDB.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
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

// prepareRead returns the statement of the reading connections for sql.
func (l *sqliteEngine) prepareRead(ctx context.Context, text string) (*sql.Stmt, error) {
	if st, ok := l.readStmts.Load(text); ok {
		return st.(*sql.Stmt), nil
	}
	p, err := l.readDB.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	st, loaded := l.readStmts.LoadOrStore(text, p)
	if loaded {
		_ = p.Close()
	}
	return st.(*sql.Stmt), nil
}

func queryStmt(ctx context.Context, prepared *sql.Stmt, s stmt) error {
	rows, err := prepared.QueryContext(ctx, s.args...)
	if err != nil {
		return err
	}
	return cmp.Or(readSQLiteRows(rows, s.readRow))
}

// readSQLiteRows calls read for each row. It tells an error of read, which undoes nothing, from one of the database.
func readSQLiteRows(rows *sql.Rows, read func(Row) error) (readErr, err error) {
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := read(rows); err != nil {
			return err, nil
		}
	}
	return nil, rows.Err()
}

// errGroupRolledBack says that a failure undid the whole transaction, as that of a full disk does.
var errGroupRolledBack = errors.New("the transaction was undone")

// runGroup commits calls together; a savepoint around each keeps one's failure from the others. Where it cannot, each
// goes alone.
func (l *sqliteEngine) runGroup(calls []*pendingBatch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(calls) == 1 {
		calls[0].done <- cmp.Or(l.runAlone(calls[0]), calls[0].readErr)
		return
	}
	errs := make([]error, len(calls))
	ctx, cancel := l.withTimeout(context.Background())
	defer cancel()
	err := l.runInTx(ctx, func() error {
		for i, c := range calls {
			if err := l.execSQL(ctx, "SAVEPOINT one"); err != nil {
				return err
			}
			if errs[i] = l.applyInGroup(c); errs[i] != nil {
				if l.execSQL(ctx, "ROLLBACK TO one") != nil {
					return errGroupRolledBack
				}
			}
			if err := l.execSQL(ctx, "RELEASE one"); err != nil {
				return err
			}
		}
		return nil
	})
	for i, c := range calls {
		if errors.Is(err, errGroupRolledBack) {
			c.done <- cmp.Or(l.runAlone(c), c.readErr)
			continue
		}
		c.done <- cmp.Or(err, errs[i], c.readErr)
	}
}

// applyInGroup executes one call of a group.
func (l *sqliteEngine) applyInGroup(c *pendingBatch) error {
	ctx, cancel := l.withTimeout(c.ctx)
	defer cancel()
	return l.applyBatch(ctx, c)
}

// runInTx runs f in a transaction of the writing connection, which ends even if f panics. l.mu is held.
func (l *sqliteEngine) runInTx(ctx context.Context, f func() error) error {
	if err := l.execSQL(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	committed := false
	defer func() {
		if !committed {
			_ = l.execSQL(context.Background(), "ROLLBACK") // SQLite may have done it already
		}
	}()
	var err error
	if l.tenantFile != nil {
		err = l.tenantFile.checkSchema(func(read func(Row) error, text string) error { return cmp.Or(l.queryRows(ctx, read, text, nil)) })
	}
	if err == nil {
		err = f()
	}
	if err == nil {
		err = l.execSQL(context.Background(), "COMMIT")
	}
	committed = err == nil
	return err
}

func (l *sqliteEngine) applyBatch(ctx context.Context, c *pendingBatch) error {
	for _, s := range c.batch.stmts {
		for _, row := range s.rows {
			if _, err := l.execArgs(ctx, s.sql, row); err != nil {
				return err
			}
		}
		if s.rowStmt != nil {
			continue
		}
		if s.readRow != nil {
			readErr, err := l.queryRows(ctx, c.rowReader(s), s.sql, s.args)
			if err != nil {
				return err
			}
			c.readErr = cmp.Or(c.readErr, readErr)
			continue
		}
		n, err := l.execArgs(ctx, s.sql, s.args)
		if err != nil {
			return err
		}
		c.setRowCount(s.affected, n)
	}
	return nil
}

func (l *sqliteEngine) execSQL(ctx context.Context, sql string) error {
	_, err := l.execArgs(ctx, sql, nil)
	return err
}

func (l *sqliteEngine) execArgs(ctx context.Context, sql string, args []any) (int64, error) {
	st, err := l.prepareWrite(ctx, sql)
	if err != nil {
		return 0, err
	}
	res, err := st.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (l *sqliteEngine) queryRows(ctx context.Context, read func(Row) error, sql string, args []any) (readErr, err error) {
	st, err := l.prepareWrite(ctx, sql)
	if err != nil {
		return nil, err
	}
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return nil, err
	}
	return readSQLiteRows(rows, read)
}

func (l *sqliteEngine) prepareWrite(ctx context.Context, sql string) (*sql.Stmt, error) {
	if st, ok := l.writeStmts[sql]; ok {
		return st, nil
	}
	st, err := l.writeConn.PrepareContext(ctx, sql)
	if err == nil {
		l.writeStmts[sql] = st
	}
	return st, err
}

func (l *sqliteEngine) runTx(ctx context.Context, _ string, _ ID, f func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	return l.runInTx(ctx, func() error {
		return f(&Tx{
			exec: func(_ context.Context, sql string, args []any) (int64, error) { return l.execArgs(ctx, sql, args) },
			query: func(_ context.Context, read func(Row) error, sql string, args []any) error {
				return cmp.Or(l.queryRows(ctx, read, sql, args))
			},
		})
	})
}
