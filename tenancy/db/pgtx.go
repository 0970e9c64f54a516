package db

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"
)

func (p *postgres) tx(ctx context.Context, role string, tenant ID, f func(*Tx) error) error {
	// What went wrong first, within the transaction or at its commit: pgx hides it behind the error of the rollback, which finds the
	// connection closed.
	var failed, commit error
	err := pgx.BeginFunc(ctx, beginner{p, &commit}, func(tx pgx.Tx) error {
		exec := func(ctx context.Context, sql string, args []any) (int64, error) {
			ctx, cancel := p.bounded(ctx)
			defer cancel()
			tag, err := tx.Exec(ctx, sql, args...)
			return tag.RowsAffected(), err
		}
		if _, failed = exec(ctx, p.enter.alone, []any{role, string(tenant)}); failed != nil {
			return failed
		}
		failed = f(&Tx{
			exec: exec,
			query: func(ctx context.Context, read func(Row) error, sql string, args []any) error {
				ctx, cancel := p.bounded(ctx)
				defer cancel()
				rows, err := tx.Query(ctx, sql, args...)
				if err != nil {
					return err
				}
				return cmp.Or(readAll(rows, read))
			},
		})
		return failed
	})
	if commit != nil {
		return outcome(commit)
	}
	return cmp.Or(failed, err)
}

// beginner begins transactions that wait for the server's answers as long as [postgres.bounded] says.
type beginner struct {
	p      *postgres
	commit *error // receives the error of the commit
}

// Begin begins a transaction, on another connection where the pool lent one that was closed meanwhile.
func (b beginner) Begin(ctx context.Context) (pgx.Tx, error) {
	ctx, cancel := b.p.bounded(ctx)
	defer cancel()
	tx, err := b.p.pool.Begin(ctx)
	for try := 1; unsent(err) && try <= int(b.p.pool.Config().MaxConns); try++ {
		tx, err = b.p.pool.Begin(ctx)
	}
	return ender{tx, b.p, b.commit}, err
}

// ender ends them.
type ender struct {
	pgx.Tx
	p      *postgres
	commit *error // as of [beginner]
}

func (e ender) Commit(ctx context.Context) error {
	ctx, cancel := e.p.bounded(ctx)
	defer cancel()
	err := e.Tx.Commit(ctx)
	*e.commit = err
	return err
}

func (e ender) Rollback(ctx context.Context) error {
	ctx, cancel := e.p.bounded(ctx)
	defer cancel()
	return e.Tx.Rollback(ctx)
}
