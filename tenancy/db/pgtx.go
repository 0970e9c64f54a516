package db

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"
)

func (p *postgresEngine) runTx(ctx context.Context, role string, tenant ID, f func(*Tx) error) error {
	// What went wrong first, within the transaction or at its commit: pgx hides it behind the error of the rollback, which finds the
	// connection closed.
	var failed, commit error
	err := pgx.BeginFunc(ctx, timedBeginner{p, &commit}, func(tx pgx.Tx) error {
		exec := func(ctx context.Context, sql string, args []any) (int64, error) {
			ctx, cancel := p.withTimeout(ctx)
			defer cancel()
			tag, err := tx.Exec(ctx, sql, args...)
			return tag.RowsAffected(), err
		}
		if _, failed = exec(ctx, p.begin.standalone, []any{role, string(tenant)}); failed != nil {
			return failed
		}
		failed = f(&Tx{
			exec: exec,
			query: func(ctx context.Context, read func(Row) error, sql string, args []any) error {
				ctx, cancel := p.withTimeout(ctx)
				defer cancel()
				rows, err := tx.Query(ctx, sql, args...)
				if err != nil {
					return err
				}
				return cmp.Or(readPostgresRows(rows, read))
			},
		})
		return failed
	})
	if commit != nil {
		return classifyCommitError(commit)
	}
	return cmp.Or(failed, err)
}

// timedBeginner begins transactions that wait for the server's answers as long as [postgresEngine.withTimeout] says.
type timedBeginner struct {
	p         *postgresEngine
	commitErr *error // receives the error of the commit
}

// Begin begins a transaction, on another connection where the pool lent one that was closed meanwhile.
func (b timedBeginner) Begin(ctx context.Context) (pgx.Tx, error) {
	ctx, cancel := b.p.withTimeout(ctx)
	defer cancel()
	tx, err := b.p.pool.Begin(ctx)
	for try := 1; isUnsent(err) && try <= int(b.p.pool.Config().MaxConns); try++ {
		tx, err = b.p.pool.Begin(ctx)
	}
	return timedTx{tx, b.p, b.commitErr}, err
}

// timedTx ends them.
type timedTx struct {
	pgx.Tx
	p         *postgresEngine
	commitErr *error // as of [timedBeginner]
}

func (e timedTx) Commit(ctx context.Context) error {
	ctx, cancel := e.p.withTimeout(ctx)
	defer cancel()
	err := e.Tx.Commit(ctx)
	*e.commitErr = err
	return err
}

func (e timedTx) Rollback(ctx context.Context) error {
	ctx, cancel := e.p.withTimeout(ctx)
	defer cancel()
	return e.Tx.Rollback(ctx)
}
