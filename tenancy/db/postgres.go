package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
		case ended(err) && try <= int(p.pool.Config().MaxConns):
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

// step is a statement of a pipeline, and whose it is: nil = nobody's alone.
type step struct {
	stmt
	of    *call
	whose []share // of each of the rows that it is about
}

// share is a row's call, and what counts it.
type share struct {
	of *call
	n  *int64
}

// company is how many batches of a tenant are worth statements that they share.
const company = 3

// pipeline returns the statements of calls, where one is about the rows of several of the same role and tenant. Where shared,
// which begins a transaction as enter does, is not empty, batches in company go by what they share, unless their tenant is one
// to be wary of; shares reports whether there are any.
func pipeline(enter, shared string, wary func(ID) bool, calls []*call) (steps []step, shares bool) {
	about := map[*rows]int{} // where in steps
	together := false
	for i, c := range calls {
		c.readErr = nil
		if i == 0 || !c.beside(calls[i-1]) {
			clear(about)
			begin := enter
			if together = shared != "" && inCompany(calls[i:]) && !wary(c.tenant); together {
				begin, shares = shared, true
			}
			steps = append(steps, step{stmt: stmt{sql: begin, args: []any{c.role, string(c.tenant)}}})
		}
		b := c.batch
		if together && b.Shared != nil {
			b = b.Shared
		}
		for _, s := range b.stmts {
			if s.about == nil {
				steps = append(steps, step{stmt: s, of: c})
				continue
			}
			at, ok := about[s.about]
			if !ok {
				at, about[s.about] = len(steps), len(steps)
				one := step{stmt: stmt{sql: s.about.sql, about: s.about}}
				if together {
					one.sql = s.about.shared
				}
				steps = append(steps, one)
			}
			to := &steps[at]
			to.rows = append(to.rows, s.rows...)
			for range s.rows {
				to.whose = append(to.whose, share{c, s.n})
			}
		}
	}
	for i := range steps {
		steps[i].fill()
	}
	return steps, shares
}

// inCompany reports whether enough of the first calls, those of one tenant, have something to share.
func inCompany(calls []*call) bool {
	n := 0
	for _, c := range calls {
		if !c.beside(calls[0]) {
			break
		}
		if c.batch.Shared != nil {
			n++
		}
	}
	return n >= company
}

// fill sets the arguments of a step that is about rows.
func (s *step) fill() {
	if s.about == nil {
		return
	}
	s.args = s.about.args(s.rows)
	if s.changes() {
		s.args = append(s.args, int64(len(s.rows)))
	}
}

// changes reports whether the step changes rows that are there.
func (s *step) changes() bool { return s.about != nil && s.about.sql == "" }

func receive(res pgx.BatchResults, steps []step) error {
	for _, s := range steps {
		if err := s.receive(res); err != nil {
			return err
		}
	}
	return nil
}

func (s *step) receive(res pgx.BatchResults) error {
	switch {
	case s.changes() && s.about.told:
		rows, err := res.Query()
		if err != nil {
			return err
		}
		readErr, err := readAll(rows, func(r Row) error {
			var n int64
			err := r.Scan(&n)
			if err == nil {
				s.whose[n-1].tell()
			}
			return err
		})
		return cmp.Or(err, readErr)
	case s.read == nil:
		tag, err := res.Exec()
		if err != nil {
			return err
		}
		if s.changes() {
			for _, w := range s.whose {
				w.tell()
			}
		} else if s.n != nil {
			s.of.count(s.n, tag.RowsAffected())
		}
		return nil
	}
	rows, err := res.Query()
	if err != nil {
		return err
	}
	readErr, err := readAll(rows, s.of.reader(s.stmt))
	if err != nil {
		return err
	}
	s.of.readErr = cmp.Or(s.of.readErr, readErr)
	return nil
}

// tell tells the row's waiter that it counts.
func (w share) tell() { w.of.count(w.n, 1) }

// readAll calls read for each row. It tells an error of read, which undoes nothing, from one of the database.
func readAll(rows pgx.Rows, read func(Row) error) (readErr, err error) {
	defer rows.Close()
	for rows.Next() {
		if err := read(rows); err != nil {
			return err, nil
		}
	}
	return nil, rows.Err()
}

func (p *postgres) runGroup(calls []*call) {
	ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
	defer cancel()
	if len(calls) == 1 {
		p.deliver(ctx, calls[0])
		return
	}
	steps, shares := pipeline(p.enter.group, p.enter.shared, p.isWary, calls)
	err := p.execute(ctx, steps, calls)
	if shares && (otherwise(err) || IsDuplicate(err)) {
		for _, c := range calls {
			if c.batch.Shared != nil {
				p.wary.Store(c.tenant, time.Now())
				c.untell()
			}
		}
		err = p.send(ctx, p.enter.group, calls...)
	}
	if !undone(err) {
		for _, c := range calls {
			c.done <- cmp.Or(err, c.readErr)
		}
		return
	}
	// One of them failed and took the others with it: nothing has happened, so each goes alone.
	var alone sync.WaitGroup
	for _, c := range calls {
		alone.Go(func() { p.deliver(ctx, c) })
	}
	alone.Wait()
}

// isWary reports whether the batches of id are to go by their own statements.
func (p *postgres) isWary(id ID) bool {
	at, ok := p.wary.Load(id)
	if !ok || time.Since(at.(time.Time)) < p.wariness {
		return ok
	}
	p.wary.CompareAndDelete(id, at)
	return false
}

// deliver executes c alone and sends its outcome. Where a row is locked it leaves c to a goroutine of its own, so that
// nobody waits behind it.
func (p *postgres) deliver(ctx context.Context, c *call) {
	err := p.alone(ctx, p.enter.group, c)
	if !locked(err) {
		c.done <- err
		return
	}
	p.wait.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lateTimeout)
		defer cancel()
		select {
		case p.late <- struct{}{}:
			defer func() { <-p.late }()
			c.done <- p.alone(ctx, p.enter.late, c)
		case <-ctx.Done():
			c.done <- err
		}
	})
}

func (p *postgres) tx(ctx context.Context, role string, tenant ID, f func(*Tx) error) error {
	committing := false
	err := pgx.BeginFunc(ctx, beginner{p}, func(tx pgx.Tx) error {
		exec := func(ctx context.Context, sql string, args []any) (int64, error) {
			ctx, cancel := p.bounded(ctx)
			defer cancel()
			tag, err := tx.Exec(ctx, sql, args...)
			return tag.RowsAffected(), err
		}
		if _, err := exec(ctx, p.enter.alone, []any{role, string(tenant)}); err != nil {
			return err
		}
		err := f(&Tx{
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
		committing = err == nil
		return err
	})
	if committing {
		return outcome(err)
	}
	return err
}

// beginner begins transactions that wait for the server's answers as long as [postgres.bounded] says.
type beginner struct{ p *postgres }

func (b beginner) Begin(ctx context.Context) (pgx.Tx, error) {
	ctx, cancel := b.p.bounded(ctx)
	defer cancel()
	tx, err := b.p.pool.Begin(ctx)
	return ender{tx, b.p}, err
}

// ender ends them.
type ender struct {
	pgx.Tx
	p *postgres
}

func (e ender) Commit(ctx context.Context) error {
	ctx, cancel := e.p.bounded(ctx)
	defer cancel()
	return e.Tx.Commit(ctx)
}

func (e ender) Rollback(ctx context.Context) error {
	ctx, cancel := e.p.bounded(ctx)
	defer cancel()
	return e.Tx.Rollback(ctx)
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

// undone reports whether err says for certain that a pipeline had no effect, for a reason that lies in it.
func undone(err error) bool {
	var pgErr *pgconn.PgError
	var early pgx.ErrPreprocessingBatch
	return errors.As(err, &pgErr) || errors.As(err, &early)
}

// conflict reports whether err is a deadlock or a serialization failure: the same transaction may succeed now.
func conflict(err error) bool { return code(err) == "40P01" || code(err) == "40001" }

// otherwise reports whether err says that a row was not as what is shared takes it to be.
func otherwise(err error) bool { return code(err) == "22012" }

// locked reports whether err says that a row stayed locked for longer than the transaction would wait.
func locked(err error) bool { return code(err) == "55P03" }

// ended reports whether err says that the server ended the session before the transaction did: at a restart, or
// because an operator said so.
func ended(err error) bool { return code(err) == "57P01" }

func code(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// outcome tells an error after which the transaction may have committed from one after which it has not.
func outcome(err error) error {
	switch {
	case err == nil, undone(err), pgconn.SafeToRetry(err):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), lostConnection(err):
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return err
}
