package db

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// groupLockTimeout is how long a group waits for a row that another process has locked before its batches go
	// their own ways.
	groupLockTimeout = "100ms"
	// groupTimeout bounds a group's transaction: nobody's request waits longer for it anyway.
	groupTimeout = 30 * time.Second
	// attempts bounds how often a batch that met a deadlock is tried.
	attempts = 4
)

// enter puts the transaction under a role and a tenant, for the transaction only.
const enter = `SELECT set_config('role', $1, true), set_config('stoa.tenant', $2, true)`

// enterGroup does the same for a batch within a group, where waiting for a lock would hold up the others.
const enterGroup = `SELECT set_config('role', $1, true), set_config('stoa.tenant', $2, true), set_config('lock_timeout', '` + groupLockTimeout + `', true)`

type postgres struct {
	pool *pgxpool.Pool
}

func openPostgres(ctx context.Context, url string, o Options) (engine, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	switch {
	case o.MaxConns > 0:
		cfg.MaxConns = int32(o.MaxConns)
	case !strings.Contains(url, "pool_max_conns"):
		cfg.MaxConns = 16
	}
	cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL: %w", err)
	}
	p := &postgres{pool: pool}
	if err := p.ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to PostgreSQL at %s:%d, database %q: %w",
			cfg.ConnConfig.Host, cfg.ConnConfig.Port, cfg.ConnConfig.Database, err)
	}
	return p, nil
}

func (p *postgres) run(ctx context.Context, c *call) error {
	var err error
	for range attempts {
		if err = p.send(ctx, enter, c); !conflict(err) {
			break
		}
	}
	return err
}

// send executes calls as one pipeline with one sync: an implicit transaction. Its error is that of the first
// statement that failed; then nothing has taken effect.
func (p *postgres) send(ctx context.Context, enter string, calls ...*call) error {
	var b pgx.Batch
	for _, c := range calls {
		b.Queue(enter, c.role, string(c.tenant))
		for _, s := range c.batch.stmts {
			b.Queue(s.sql, s.args...)
		}
	}
	res := p.pool.SendBatch(ctx, &b)
	err := receive(res, calls)
	if cerr := res.Close(); err == nil {
		err = cerr
	}
	return outcome(err)
}

func receive(res pgx.BatchResults, calls []*call) error {
	for _, c := range calls {
		if _, err := res.Exec(); err != nil {
			return err
		}
		for _, s := range c.batch.stmts {
			if s.read == nil {
				tag, err := res.Exec()
				if err != nil {
					return err
				}
				if s.n != nil {
					*s.n = tag.RowsAffected()
				}
				continue
			}
			rows, err := res.Query()
			if err != nil {
				return err
			}
			if err := readAll(rows, s.read); err != nil {
				return err
			}
		}
	}
	return nil
}

func readAll(rows pgx.Rows, read func(Row) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := read(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (p *postgres) runGroup(calls []*call) {
	ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
	defer cancel()
	if len(calls) == 1 {
		calls[0].done <- p.run(ctx, calls[0])
		return
	}
	err := p.send(ctx, enterGroup, calls...)
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		for _, c := range calls {
			c.done <- err
		}
		return
	}
	// One of them failed and took the others with it: nothing has happened, so each goes alone.
	var alone sync.WaitGroup
	for _, c := range calls {
		alone.Go(func() { c.done <- p.run(ctx, c) })
	}
	alone.Wait()
}

func (p *postgres) tx(ctx context.Context, role string, tenant ID, f func(*Tx) error) error {
	err := pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, enter, role, string(tenant)); err != nil {
			return err
		}
		return f(&Tx{
			exec: func(ctx context.Context, sql string, args []any) (int64, error) {
				tag, err := tx.Exec(ctx, sql, args...)
				return tag.RowsAffected(), err
			},
			query: func(ctx context.Context, read func(Row) error, sql string, args []any) error {
				rows, err := tx.Query(ctx, sql, args...)
				if err != nil {
					return err
				}
				return readAll(rows, read)
			},
		})
	})
	return outcome(err)
}

func (p *postgres) ping(ctx context.Context) error { return p.pool.Ping(ctx) }

func (p *postgres) close() error {
	p.pool.Close()
	return nil
}

// conflict reports whether err is a deadlock or a serialization failure: the same transaction may succeed now.
func conflict(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code == "40P01" || e.Code == "40001")
}

// outcome tells an error after which the transaction may have committed from one after which it has not.
func outcome(err error) error {
	var pgErr *pgconn.PgError
	var dial *pgconn.ConnectError
	switch {
	case err == nil, errors.As(err, &pgErr), errors.As(err, &dial), pgconn.SafeToRetry(err):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), lostConnection(err):
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return err
}
