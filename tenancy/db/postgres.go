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
	// lockWaitTimeout bounds the transaction of a batch that waits for a locked row: nobody's request waits longer for it anyway.
	lockWaitTimeout = 30 * time.Second
	// maxAttempts bounds how often a batch that met a deadlock is tried.
	maxAttempts = 4
)

// txBegin is how a transaction begins: the statement that puts it, for itself only, under a role and a tenant.
type txBegin struct {
	standalone string
	// Of a batch that others wait for, and of one that went its own way since: they say how long a row that somebody
	// else has locked is waited for.
	group, lockWait string
	// Of batches that share statements: those are planned once, whatever there is in the tables then. See [newRowChange].
	shared string
}

// newTxBegin returns the entry that sets the role by the setting of that name.
func newTxBegin(setting string) txBegin {
	beginSQL := `SELECT set_config('` + setting + `', $1, true), set_config('stoa.tenant', $2, true)`
	group := beginSQL + `, set_config('lock_timeout', '100ms', true)`
	return txBegin{
		standalone: beginSQL, group: group, lockWait: beginSQL + `, set_config('lock_timeout', '20s', true)`,
		shared: group + `, set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
			set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`,
	}
}

type postgresEngine struct {
	pool            *pgxpool.Pool
	begin           txBegin
	responseTimeout time.Duration  // after which an answer counts as lost, where its caller has not said how long it is waited for
	lockWaitSlots   chan struct{}  // places, and so connections, for batches that wait for a locked row
	readSlots       chan struct{}  // and for what tenants read: however much that is, leases are renewed and commits made
	lockWaits       sync.WaitGroup // for those batches

	// Tenants whose batches did not find what they share, and when that was. It cost everybody in the group a second attempt,
	// so for some time they go by their own statements.
	sharedBackoff     sync.Map // ID to time.Time
	sharedBackoffTime time.Duration
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
	p := newPostgresEngine(pool, newTxBegin("role"), cmp.Or(o.ResponseTimeout, 30*time.Second))
	if err := p.pingServer(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to PostgreSQL at %s:%d, database %q: %w",
			cfg.ConnConfig.Host, cfg.ConnConfig.Port, cfg.ConnConfig.Database, err)
	}
	return p, nil
}

func newPostgresEngine(pool *pgxpool.Pool, beginSQL txBegin, lost time.Duration) *postgresEngine {
	conns := pool.Config().MaxConns
	return &postgresEngine{
		pool: pool, begin: beginSQL, responseTimeout: lost, lockWaitSlots: make(chan struct{}, max(1, conns/4)), readSlots: make(chan struct{}, max(1, conns-conns/4)),
		sharedBackoffTime: time.Second,
	}
}

func (p *postgresEngine) runBatch(ctx context.Context, c *pendingBatch) error {
	if c.tenant != "" {
		select {
		case p.readSlots <- struct{}{}:
			defer func() { <-p.readSlots }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return p.runAlone(ctx, p.begin.standalone, c)
}

// runAlone executes c in a transaction of its own, again where another one's deadlock or the end of its connection undid it.
func (p *postgresEngine) runAlone(ctx context.Context, beginSQL string, c *pendingBatch) error {
	for try := 1; ; try++ {
		err := p.runPipeline(ctx, beginSQL, c)
		switch {
		case isConflict(err) && try < maxAttempts: // not at once, or the same two meet again
			time.Sleep(rand.N(10 * time.Millisecond << try))
		case (isSessionEnded(err) || isUnsent(err)) && try <= int(p.pool.Config().MaxConns):
		default:
			return cmp.Or(err, c.readErr)
		}
	}
}

// runPipeline executes calls as one pipeline with one sync: an implicit transaction. Its error is that of the first
// statement that failed; then nothing has taken effect.
func (p *postgresEngine) runPipeline(ctx context.Context, beginSQL string, calls ...*pendingBatch) error {
	steps, _ := buildPipeline(beginSQL, "", nil, calls)
	return p.executeSteps(ctx, steps, calls)
}

func (p *postgresEngine) executeSteps(ctx context.Context, steps []pipelineStep, calls []*pendingBatch) error {
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
		presizeSendBuffer(conn.Conn())
	}
	ctx, cancel := p.withTimeout(ctx)
	defer cancel()
	res := conn.SendBatch(ctx, &b)
	err = receiveResults(res, steps)
	if cerr := res.Close(); err == nil {
		err = cerr
	}
	for _, c := range calls {
		if c.batch.writes {
			return classifyCommitError(err)
		}
	}
	return err
}

// withTimeout returns a context for one answer of the server. One that is lost on the way would be waited for for ever: to both
// sides the connection looks whole.
func (p *postgresEngine) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, p.responseTimeout)
}

func (p *postgresEngine) pingServer(ctx context.Context) error { return p.pool.Ping(ctx) }

func (p *postgresEngine) poolStats() Stats {
	s := p.pool.Stat()
	return Stats{int64(s.MaxConns()), int64(s.TotalConns()), int64(s.IdleConns()), s.EmptyAcquireCount(), s.EmptyAcquireWaitTime()}
}

func (p *postgresEngine) closeEngine() error {
	p.lockWaits.Wait()
	p.pool.Close()
	return nil
}
