package db

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// groupTimeout bounds a group's transaction: what others write waits behind it.
	groupTimeout = 10 * time.Second
	// lateTimeout bounds the transaction of a batch that waits for a locked row: nobody's request waits longer for it anyway.
	lateTimeout = 30 * time.Second
	// attempts bounds how often a batch that met a deadlock is tried.
	attempts = 4
)

// entry is how a transaction begins: the statement that puts it, for itself only, under a role and a tenant.
type entry struct {
	alone string
	// Of a batch that others wait for, and of one that went its own way since: they say how long a row that somebody
	// else has locked is waited for.
	group, late string
	// Of batches that share statements: those are planned once, whatever there is in the tables then. See [newChange].
	shared string
}

// entryBy returns the entry that sets the role by the setting of that name.
func entryBy(setting string) entry {
	enter := `SELECT set_config('` + setting + `', $1, true), set_config('stoa.tenant', $2, true)`
	group := enter + `, set_config('lock_timeout', '100ms', true)`
	return entry{
		alone: enter, group: group, late: enter + `, set_config('lock_timeout', '20s', true)`,
		shared: group + `, set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
			set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`,
	}
}

type postgres struct {
	pool  *pgxpool.Pool
	enter entry
	lost  time.Duration  // after which an answer counts as lost, where its caller has not said how long it is waited for
	late  chan struct{}  // places, and so connections, for batches that wait for a locked row
	reads chan struct{}  // and for what tenants read: however much that is, leases are renewed and commits made
	wait  sync.WaitGroup // for those batches

	// Tenants whose batches did not find what they share, and when that was. It cost everybody in the group a second attempt,
	// so for some time they go by their own statements.
	wary     sync.Map // ID to time.Time
	wariness time.Duration
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
	p := newPostgres(pool, entryBy("role"), cmp.Or(o.Lost, 30*time.Second))
	if err := p.ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to PostgreSQL at %s:%d, database %q: %w",
			cfg.ConnConfig.Host, cfg.ConnConfig.Port, cfg.ConnConfig.Database, err)
	}
	return p, nil
}

func newPostgres(pool *pgxpool.Pool, enter entry, lost time.Duration) *postgres {
	conns := pool.Config().MaxConns
	return &postgres{
		pool: pool, enter: enter, lost: lost, late: make(chan struct{}, max(1, conns/4)), reads: make(chan struct{}, max(1, conns-conns/4)),
		wariness: time.Second,
	}
}

func (p *postgres) run(ctx context.Context, c *call) error {
	if c.tenant != "" {
		select {
		case p.reads <- struct{}{}:
			defer func() { <-p.reads }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return p.alone(ctx, p.enter.alone, c)
}

// alone executes c in a transaction of its own, again where another one's deadlock or the end of its connection undid it.
func (p *postgres) alone(ctx context.Context, enter string, c *call) error {
	for try := 1; ; try++ {
		err := p.send(ctx, enter, c)
		switch {
		case conflict(err) && try < attempts: // not at once, or the same two meet again
			time.Sleep(rand.N(10 * time.Millisecond << try))
		case (ended(err) || unsent(err)) && try <= int(p.pool.Config().MaxConns):
		default:
			return cmp.Or(err, c.readErr)
		}
	}
}

// send executes calls as one pipeline with one sync: an implicit transaction. Its error is that of the first
// statement that failed; then nothing has taken effect.
func (p *postgres) send(ctx context.Context, enter string, calls ...*call) error {
	steps, _ := pipeline(enter, "", nil, calls)
	return p.execute(ctx, steps, calls)
}

func (p *postgres) execute(ctx context.Context, steps []step, calls []*call) error {
	var b pgx.Batch
	for _, s := range steps {
		b.Queue(s.sql, s.args...)
	}
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if len(calls) > 1 {
		makeRoom(conn.Conn())
	}
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	res := conn.SendBatch(ctx, &b)
	err = receive(res, steps)
	if cerr := res.Close(); err == nil {
		err = cerr
	}
	for _, c := range calls {
		if c.batch.writes {
			return outcome(err)
		}
	}
	return err
}

// bounded returns a context for one answer of the server. One that is lost on the way would be waited for for ever: to both
// sides the connection looks whole.
func (p *postgres) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, p.lost)
}

func (p *postgres) ping(ctx context.Context) error { return p.pool.Ping(ctx) }

func (p *postgres) stats() Stats {
	s := p.pool.Stat()
	return Stats{int64(s.MaxConns()), int64(s.TotalConns()), int64(s.IdleConns()), s.EmptyAcquireCount(), s.EmptyAcquireWaitTime()}
}

func (p *postgres) close() error {
	p.wait.Wait()
	p.pool.Close()
	return nil
}
