package db

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"
)

// runTx runs f in a transaction. Each statement has its own response timeout, so that the time that f takes does not
// count.
func (p *postgresEngine) runTx(ctx context.Context, role string, tenant ID, f func(*Tx) error) error {
	return p.runTxWith(ctx, pgx.TxOptions{}, role, tenant, f)
}

// readTx is runTx with one snapshot for all statements, which may not write.
func (p *postgresEngine) readTx(ctx context.Context, role string, tenant ID, f func(*Tx) error) error {
	return p.runTxWith(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, role, tenant, f)
}

// runTxWith runs f in a transaction with options.
func (p *postgresEngine) runTxWith(ctx context.Context, options pgx.TxOptions, role string, tenant ID, f func(*Tx) error) error {
	// The first error, within the transaction or at its commit: pgx replaces it by the error of the rollback, which
	// fails on the closed connection.
	var failed, commit error
	err := pgx.BeginFunc(ctx, timedBeginner{p, options, &commit}, func(tx pgx.Tx) error {
		exec := func(ctx context.Context, sql string, args []any) (int64, error) {
			ctx, cancel := p.withTimeout(ctx)
			defer cancel()
			n := int64(0)
			err := p.call(tx.Conn(), func() error {
				tag, err := tx.Exec(ctx, sql, args...)
				n = tag.RowsAffected()
				return err
			})
			return n, err
		}
		if _, failed = exec(ctx, p.begin.standalone, []any{role, string(tenant)}); failed != nil {
			return failed
		}
		failed = f(&Tx{
			exec:       exec,
			mergesRows: true,
			query: func(ctx context.Context, read func(Row) error, sql string, args []any) error {
				ctx, cancel := p.withTimeout(ctx)
				defer cancel()
				return p.call(tx.Conn(), func() error {
					rows, err := tx.Query(ctx, sql, args...)
					if err != nil {
						return err
					}
					return cmp.Or(readPostgresRows(rows, read))
				})
			},
		})
		return failed
	})
	if commit != nil {
		return classifyCommitError(commit)
	}
	return cmp.Or(failed, err)
}

// timedBeginner begins transactions whose begin, commit and rollback have the timeout of [postgresEngine.withTimeout].
type timedBeginner struct {
	p         *postgresEngine
	options   pgx.TxOptions
	commitErr *error // receives the error of the commit; read by runTx
}

// Begin begins a transaction. If the pool returned a connection that the server has closed, it takes another one, at
// most as often as the pool has connections.
func (b timedBeginner) Begin(ctx context.Context) (pgx.Tx, error) {
	ctx, cancel := b.p.withTimeout(ctx)
	defer cancel()
	tx, err := b.p.pool.BeginTx(ctx, b.options)
	for try := 1; isUnsent(err) && try <= int(b.p.pool.Config().MaxConns); try++ {
		tx, err = b.p.pool.BeginTx(ctx, b.options)
	}
	return timedTx{tx, b.p, b.commitErr}, err
}

// timedTx is a transaction whose end has a timeout.
type timedTx struct {
	pgx.Tx
	p *postgresEngine
	// commitErr is that of timedBeginner.
	commitErr *error
}

// Commit records its error in commitErr, from which runTx finds out whether the outcome is known.
func (t timedTx) Commit(ctx context.Context) error {
	ctx, cancel := t.p.withTimeout(ctx)
	defer cancel()
	err := t.p.call(t.Conn(), func() error { return t.Tx.Commit(ctx) })
	*t.commitErr = err
	return err
}

func (t timedTx) Rollback(ctx context.Context) error {
	ctx, cancel := t.p.withTimeout(ctx)
	defer cancel()
	return t.p.call(t.Conn(), func() error { return t.Tx.Rollback(ctx) })
}
