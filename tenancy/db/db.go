// Package db is the one seam to SQL. A [DB] is the platform's database, PostgreSQL or SQLite, behind one body of
// SQL; a [Handle] is the only way to its rows: [DB.Tenant] gives one that reaches a single tenant's rows,
// [DB.Platform] one that reaches all of them and says so in its name.
//
// A store call is a [Batch], a list of statements that take effect together in one round trip. [Handle.Do] sends it
// alone, [Handle.Write] groups it with concurrent ones into one commit. On PostgreSQL each batch sets its role and
// tenant itself, for its transaction only, so that forced row-level security holds without a round trip of its own;
// on SQLite the handle is the only lock.
//
// SQL is written once: numbered parameters ($1), CAST instead of ::, text keys, microseconds in BIGINT and
// stoa_now() for the database's own time.
package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// ID is a tenant's immutable identifier. It is the first column of every tenant table's key.
type ID string

// Engine is a kind of database.
type Engine string

// The engines.
const (
	Postgres Engine = "postgres"
	SQLite   Engine = "sqlite"
)

// The roles under which statements run on PostgreSQL. Both are NOLOGIN and own nothing.
const (
	roleTenant   = "stoa_tenant"
	rolePlatform = "stoa_platform"
)

// ErrUnknownOutcome says that the connection was lost, or the caller's time over, while a transaction may have been
// committing: its rows must be looked up before anyone is answered.
var ErrUnknownOutcome = errors.New("the outcome of the commit is unknown")

// ErrClosed says that the database has been closed.
var ErrClosed = errors.New("the database is closed")

// Options tune a [DB]. The zero value works.
type Options struct {
	MaxConns int // connections of the pool on PostgreSQL; 0 = what the URL says, else 16
	// OnCommit is told, after each commit of [Handle.Write], how many batches it held; it may be nil.
	OnCommit func(ctx context.Context, batches int)
	// ResponseTimeout is when an answer of PostgreSQL counts as lost on the way where its caller has set no deadline; 30 seconds.
	ResponseTimeout time.Duration
	Log             *slog.Logger
}

// maxWriters is how many group commits may be under way at a time.
var maxWriters = map[Engine]int{Postgres: 2, SQLite: 1}

// engine is what PostgreSQL and SQLite do differently.
type engine interface {
	// runBatch executes c alone, in one transaction.
	runBatch(ctx context.Context, c *pendingBatch) error
	// runGroup executes calls in one transaction and sends each its outcome.
	runGroup(calls []*pendingBatch)
	runTx(ctx context.Context, role string, tenant ID, f func(*Tx) error) error
	pingServer(ctx context.Context) error
	poolStats() Stats
	closeEngine() error
}

// DB is the platform's database. It is safe for concurrent use.
type DB struct {
	engineKind Engine
	url        string
	engine     engine
	coalescer  *coalescer
	quota      Quota // nil = tenants may store what they like
}

// Open connects to the database at url: sqlite://PATH, sqlite://:memory: or postgres://... . It does not migrate.
// A SQLite file is locked for this process; a second one is refused.
func Open(ctx context.Context, url string, o Options) (*DB, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	d := &DB{url: url}
	var err error
	switch scheme, remaining, _ := strings.Cut(url, "://"); scheme {
	case "sqlite":
		d.engineKind = SQLite
		d.engine, err = openSQLite(ctx, remaining, platformFileOptions)
	case "postgres", "postgresql":
		d.engineKind = Postgres
		d.engine, err = openPostgres(ctx, url, o)
	default:
		return nil, fmt.Errorf("database URL must begin with sqlite:// or postgres://")
	}
	if err != nil {
		return nil, err
	}
	d.coalescer = newCoalescer(d.engine, maxWriters[d.engineKind])
	d.coalescer.onCommit = o.OnCommit
	return d, nil
}

// Engine tells which engine d runs on.
func (d *DB) Engine() Engine { return d.engineKind }

// URL returns the address d was opened with. It may hold a password.
func (d *DB) URL() string { return d.url }

// Tenant returns the handle through which the rows of id are reached, and no others.
func (d *DB) Tenant(id ID) *Handle { return &Handle{d: d, role: roleTenant, tenant: id} }

// Platform returns the handle that reaches every tenant's rows: for claims, rescues and the operator's lists.
func (d *DB) Platform() *Handle { return &Handle{d: d, role: rolePlatform} }

// Ping reports whether the database answers.
func (d *DB) Ping(ctx context.Context) error { return d.engine.pingServer(ctx) }

// Stats is the pool of connections to PostgreSQL at present. On SQLite there is none, and all of it is zero.
type Stats struct {
	Max, Open, Idle int64
	Waits           int64 // how often somebody has found none free
	Waited          time.Duration
}

// Stats tells of the pool.
func (d *DB) Stats() Stats { return d.engine.poolStats() }

// ErrBusy says that [DB.EraseDeleted] has to wait for those who read.
var ErrBusy = errors.New("the database is being read")

// EraseDeleted sees to it that what was deleted is in no file of the database any more. On SQLite it rebuilds a file
// of at most 256 MiB and empties the journal, and is [ErrBusy] while somebody reads an older state; PostgreSQL does it by
// itself, when it vacuums.
func (d *DB) EraseDeleted(ctx context.Context) error {
	if l, ok := d.engine.(*sqliteEngine); ok {
		return l.eraseDeleted(ctx)
	}
	return nil
}

// Close finishes the writes under way and disconnects.
func (d *DB) Close() error {
	d.coalescer.closeAndWait()
	return d.engine.closeEngine()
}

// Handle reaches a tenant's rows, or every tenant's where it came from [DB.Platform].
type Handle struct {
	d      *DB
	role   string
	tenant ID
}

// Tenant returns the tenant whose rows h reaches, "" for the platform's handle.
func (h *Handle) Tenant() ID { return h.tenant }

// Engine tells which engine h runs on.
func (h *Handle) Engine() Engine { return h.d.engineKind }

// Do executes b in one transaction and one round trip. The database's [Quota] may refuse it.
func (h *Handle) Do(ctx context.Context, b *Batch) (err error) {
	if err := h.checkQuota(b); err != nil {
		return err
	}
	ctx, span := h.startSpan(ctx, b)
	if span != nil {
		defer func() { endSpan(span, err) }()
	}
	return h.d.engine.runBatch(ctx, &pendingBatch{role: h.role, tenant: h.tenant, batch: b})
}

// Write executes b in one transaction, grouped with concurrent writes into one commit. A statement that fails undoes
// its own batch and no other. When ctx ends first the error is [ErrUnknownOutcome] if the batch may still take effect;
// what it then finds reaches nobody: no count is set and no read function called once Write has returned.
func (h *Handle) Write(ctx context.Context, b *Batch) (err error) {
	if err := h.checkQuota(b); err != nil {
		return err
	}
	ctx, span := h.startSpan(ctx, b)
	if span != nil {
		defer func() { endSpan(span, err) }()
	}
	return h.d.coalescer.writeBatch(ctx, &pendingBatch{ctx: ctx, role: h.role, tenant: h.tenant, batch: b, done: make(chan error, 1), span: span})
}

// RunTx runs f in a transaction that commits when f returns nil. It holds a connection, on SQLite the only writing one,
// for as long as f takes: it is for administration, not for calls.
func (h *Handle) RunTx(ctx context.Context, f func(tx *Tx) error) (err error) {
	ctx, span := h.startSpan(ctx, nil)
	if span != nil {
		defer func() { endSpan(span, err) }()
	}
	return h.d.engine.runTx(ctx, h.role, h.tenant, f)
}

// Row is one row of a result.
type Row interface {
	Scan(dest ...any) error
}

// Tx is a transaction under way.
type Tx struct {
	exec  func(ctx context.Context, sql string, args []any) (int64, error)
	query func(ctx context.Context, read func(Row) error, sql string, args []any) error
}

// Exec executes a statement and returns how many rows it touched.
func (tx *Tx) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	return tx.exec(ctx, sql, args)
}

// Query executes a statement and calls read for each row of its result.
func (tx *Tx) Query(ctx context.Context, read func(Row) error, sql string, args ...any) error {
	return tx.query(ctx, read, sql, args)
}
