package db

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// groupTimeout bounds a group's transaction, since other writes wait for it.
	groupTimeout = 10 * time.Second
	// lockWaitTimeout bounds a batch that waits for a locked row, including the wait for a slot.
	lockWaitTimeout = 30 * time.Second
	// maxAttempts is how often a batch is tried that met a deadlock or a serialization failure.
	maxAttempts = 4
)

// txBegin holds the statements that begin a transaction: each sets, for the transaction only, the role ($1) and the
// tenant ($2) to which the policies of row-level security refer.
type txBegin struct {
	// standalone is for a batch that no other waits for. Locked rows are waited for without a bound of their own.
	standalone string
	// group is for a batch that others wait for: a locked row is waited for 100 ms. lockWait is for such a batch that
	// was taken out of its group: 20 s.
	group, lockWait string
	// shared is group for shared statements. It makes the planner choose generic plans with index lookups, whatever the
	// statistics of the tables say at that moment. See [newRowChange].
	shared string
}

// newTxBegin returns the statements for the setting that holds the role: "role" itself, or, for an external database
// without Stoa's roles, a setting without effect.
func newTxBegin(setting string) txBegin {
	beginSQL := `SELECT set_config('` + setting + `', $1, true), set_config('stoa.tenant', $2, true)`
	group := beginSQL + `, set_config('lock_timeout', '100ms', true)`
	return txBegin{
		standalone: beginSQL, group: group, lockWait: beginSQL + `, set_config('lock_timeout', '20s', true)`,
		shared: group + `, set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
			set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`,
	}
}

// readOnly returns the statements with which each transaction refuses to write. The setting is of the transaction, because
// a pooler in transaction mode gives the session to others afterwards.
func (b txBegin) readOnly() txBegin {
	const setting = `, set_config('transaction_read_only', 'on', true)`
	return txBegin{standalone: b.standalone + setting, group: b.group + setting, lockWait: b.lockWait + setting, shared: b.shared + setting}
}

// postgresEngine executes batches on PostgreSQL through a connection pool. A pipeline with one sync is an implicit
// transaction: its statements are sent together and committed together in one round trip.
type postgresEngine struct {
	pool  *pgxpool.Pool
	begin txBegin
	// isExternal is set for the server of an app, which may send anything, see call.
	isExternal bool
	// responseTimeout is how long an answer is waited for if the caller set no deadline.
	responseTimeout time.Duration
	// lockWaitSlots bounds the batches that wait for locked rows to a quarter of the connections.
	lockWaitSlots chan struct{}
	// readSlots bounds the batches that tenants execute with Do to three quarters of the connections, so that commits
	// and the renewal of leases always find one.
	readSlots chan struct{}
	// lockWaits counts the goroutines of runAloneAndReply, for closeEngine.
	lockWaits sync.WaitGroup

	// sharedBackoff maps a tenant to the time at which one of its shared statements failed. A failure makes the whole
	// group repeat its work, so such a tenant uses its own statements for sharedBackoffTime.
	sharedBackoff     sync.Map // from ID to time.Time
	sharedBackoffTime time.Duration
}

// openPostgres opens the platform's database and checks that it answers.
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
	cfg.AfterConnect = registerColumnCodecs
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL: %w", err)
	}
	begin := newTxBegin("role")
	if o.ReadOnly {
		begin = begin.readOnly()
	}
	p := newPostgresEngine(pool, begin, cmp.Or(o.ResponseTimeout, 30*time.Second))
	if err := p.pingServer(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to PostgreSQL at %s:%d, database %q: %w",
			cfg.ConnConfig.Host, cfg.ConnConfig.Port, cfg.ConnConfig.Database, err)
	}
	return p, nil
}

// newPostgresEngine returns an engine over pool; lost is the responseTimeout.
func newPostgresEngine(pool *pgxpool.Pool, beginSQL txBegin, lost time.Duration) *postgresEngine {
	conns := pool.Config().MaxConns
	return &postgresEngine{
		pool: pool, begin: beginSQL, responseTimeout: lost, lockWaitSlots: make(chan struct{}, max(1, conns/4)), readSlots: make(chan struct{}, max(1, conns-conns/4)),
		sharedBackoffTime: time.Second,
	}
}

// runBatch executes c alone. A tenant's batch takes a slot first; the platform's does not wait.
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

// runAlone executes c in a transaction of its own. It repeats c after a deadlock or serialization failure, and after
// the end of a connection before anything took effect, for instance at a restart of the server.
func (p *postgresEngine) runAlone(ctx context.Context, beginSQL string, c *pendingBatch) error {
	for try := 1; ; try++ {
		err := p.runPipeline(ctx, beginSQL, c)
		switch {
		case isConflict(err) && try < maxAttempts: // after a random pause, else the same two batches meet again
			time.Sleep(rand.N(10 * time.Millisecond << try))
		case (isSessionEnded(err) || isUnsent(err)) && try <= int(p.pool.Config().MaxConns):
		default:
			return cmp.Or(err, c.readErr)
		}
	}
}

// runPipeline executes calls as one pipeline with their own statements. The error is that of the first statement that
// failed; then nothing has taken effect.
func (p *postgresEngine) runPipeline(ctx context.Context, beginSQL string, calls ...*pendingBatch) error {
	steps, _ := buildPipeline(beginSQL, "", nil, calls)
	return p.executeSteps(ctx, steps, calls)
}

// executeSteps sends steps as one pipeline and reads their results. Only if a batch writes is an error classified as
// one with an unknown outcome.
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
	err = p.call(conn.Conn(), func() error {
		res := conn.SendBatch(ctx, &b)
		err := receiveResults(res, steps)
		if cerr := res.Close(); err == nil {
			err = cerr
		}
		return err
	})
	for _, c := range calls {
		if c.batch.writes {
			return classifyCommitError(err)
		}
	}
	return err
}

// call calls the driver for one answer on conn. That of an app's server is bounded in bytes, and if the driver panics on it
// that is an error and the end of the connection, which the pool then does not use again.
func (p *postgresEngine) call(conn *pgx.Conn, f func() error) error {
	if !p.isExternal {
		return f()
	}
	plain := conn.PgConn().Conn()
	if encrypted, ok := plain.(*tls.Conn); ok {
		plain = encrypted.NetConn()
	}
	server, ok := plain.(*serverConn)
	if ok {
		server.beginBytes()
	}
	err := recoverDriver(f)
	if errors.Is(err, errDriverPanic) {
		_ = plain.Close()
	}
	if ok {
		err = server.explain(err)
	}
	return err
}

// withTimeout returns a context for one answer of the server. Without a deadline an answer that is lost on the network
// would be waited for forever, because the connection looks intact to both sides.
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

// closeEngine waits for batches that wait for locked rows, whose callers still expect an outcome, and closes the pool.
func (p *postgresEngine) closeEngine() error {
	p.lockWaits.Wait()
	p.pool.Close()
	return nil
}
