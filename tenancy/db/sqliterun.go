package db

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
)

func (l *lite) run(ctx context.Context, c *call) error {
	if !c.batch.writes && l.read != nil {
		if l.file != nil {
			return l.viewTenant(ctx, c)
		}
		return l.view(ctx, c)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.ctx = ctx
	return cmp.Or(l.alone(c), c.readErr)
}

// alone executes c in a transaction of its own. l.mu is held.
func (l *lite) alone(c *call) error {
	ctx, cancel := l.bound(c.ctx)
	defer cancel()
	return l.inTx(ctx, func() error { return l.apply(ctx, c) })
}

// bound returns the context of a call's statements: on a guest's file they end with their caller, and after the longest time.
// The platform's end by themselves, and a statement that can be interrupted costs more.
func (l *lite) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.longest == 0 {
		return context.Background(), func() {}
	}
	if ctx == nil {
		ctx = context.Background()
	}
	return context.WithTimeout(ctx, l.longest)
}

// view reads in one snapshot.
func (l *lite) view(ctx context.Context, c *call) error {
	if l.longest > 0 {
		var cancel context.CancelFunc
		ctx, cancel = l.bound(ctx)
		defer cancel()
	}
	// Prepared before the transaction begins: preparing takes a connection, and a transaction that waits for a second
	// one while it holds its first can wait for ever.
	prepared := make([]*sql.Stmt, len(c.batch.stmts))
	for i, s := range c.batch.stmts {
		var err error
		if prepared[i], err = l.forReading(ctx, s.sql); err != nil {
			return err
		}
	}
	if len(prepared) == 1 {
		return look(ctx, prepared[0], c.batch.stmts[0])
	}
	tx, err := l.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	for i, s := range c.batch.stmts {
		if err := look(ctx, tx.StmtContext(ctx, prepared[i]), s); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}

// forReading returns the statement of the reading connections for sql.
func (l *lite) forReading(ctx context.Context, text string) (*sql.Stmt, error) {
	if st, ok := l.reader.Load(text); ok {
		return st.(*sql.Stmt), nil
	}
	p, err := l.read.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	st, loaded := l.reader.LoadOrStore(text, p)
	if loaded {
		_ = p.Close()
	}
	return st.(*sql.Stmt), nil
}

func look(ctx context.Context, prepared *sql.Stmt, s stmt) error {
	rows, err := prepared.QueryContext(ctx, s.args...)
	if err != nil {
		return err
	}
	return cmp.Or(readRows(rows, s.read))
}

// readRows calls read for each row. It tells an error of read, which undoes nothing, from one of the database.
func readRows(rows *sql.Rows, read func(Row) error) (readErr, err error) {
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := read(rows); err != nil {
			return err, nil
		}
	}
	return nil, rows.Err()
}

// errGroupUndone says that a failure undid the whole transaction, as that of a full disk does.
var errGroupUndone = errors.New("the transaction was undone")

// runGroup commits calls together; a savepoint around each keeps one's failure from the others. Where it cannot, each
// goes alone.
func (l *lite) runGroup(calls []*call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(calls) == 1 {
		calls[0].done <- cmp.Or(l.alone(calls[0]), calls[0].readErr)
		return
	}
	errs := make([]error, len(calls))
	ctx, cancel := l.bound(context.Background())
	defer cancel()
	err := l.inTx(ctx, func() error {
		for i, c := range calls {
			if err := l.exec(ctx, "SAVEPOINT one"); err != nil {
				return err
			}
			if errs[i] = l.applyOne(c); errs[i] != nil {
				if l.exec(ctx, "ROLLBACK TO one") != nil {
					return errGroupUndone
				}
			}
			if err := l.exec(ctx, "RELEASE one"); err != nil {
				return err
			}
		}
		return nil
	})
	for i, c := range calls {
		if errors.Is(err, errGroupUndone) {
			c.done <- cmp.Or(l.alone(c), c.readErr)
			continue
		}
		c.done <- cmp.Or(err, errs[i], c.readErr)
	}
}

// applyOne executes one call of a group.
func (l *lite) applyOne(c *call) error {
	ctx, cancel := l.bound(c.ctx)
	defer cancel()
	return l.apply(ctx, c)
}

// inTx runs f in a transaction of the writing connection, which ends even if f panics. l.mu is held.
func (l *lite) inTx(ctx context.Context, f func() error) error {
	if err := l.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	committed := false
	defer func() {
		if !committed {
			_ = l.exec(context.Background(), "ROLLBACK") // SQLite may have done it already
		}
	}()
	var err error
	if l.file != nil {
		err = l.file.checkSchema(func(read func(Row) error, text string) error { return cmp.Or(l.readWith(ctx, read, text, nil)) })
	}
	if err == nil {
		err = f()
	}
	if err == nil {
		err = l.exec(context.Background(), "COMMIT")
	}
	committed = err == nil
	return err
}

func (l *lite) apply(ctx context.Context, c *call) error {
	for _, s := range c.batch.stmts {
		for _, row := range s.rows {
			if _, err := l.execArgs(ctx, s.sql, row); err != nil {
				return err
			}
		}
		if s.about != nil {
			continue
		}
		if s.read != nil {
			readErr, err := l.readWith(ctx, c.reader(s), s.sql, s.args)
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
		c.count(s.n, n)
	}
	return nil
}

func (l *lite) exec(ctx context.Context, sql string) error {
	_, err := l.execArgs(ctx, sql, nil)
	return err
}

func (l *lite) execArgs(ctx context.Context, sql string, args []any) (int64, error) {
	st, err := l.prepared(ctx, sql)
	if err != nil {
		return 0, err
	}
	res, err := st.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (l *lite) readWith(ctx context.Context, read func(Row) error, sql string, args []any) (readErr, err error) {
	st, err := l.prepared(ctx, sql)
	if err != nil {
		return nil, err
	}
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return nil, err
	}
	return readRows(rows, read)
}

func (l *lite) prepared(ctx context.Context, sql string) (*sql.Stmt, error) {
	if st, ok := l.stmts[sql]; ok {
		return st, nil
	}
	st, err := l.conn.PrepareContext(ctx, sql)
	if err == nil {
		l.stmts[sql] = st
	}
	return st, err
}

func (l *lite) tx(ctx context.Context, _ string, _ ID, f func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, cancel := l.bound(ctx)
	defer cancel()
	return l.inTx(ctx, func() error {
		return f(&Tx{
			exec: func(_ context.Context, sql string, args []any) (int64, error) { return l.execArgs(ctx, sql, args) },
			query: func(_ context.Context, read func(Row) error, sql string, args []any) error {
				return cmp.Or(l.readWith(ctx, read, sql, args))
			},
		})
	})
}
