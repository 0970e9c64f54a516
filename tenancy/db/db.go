// Package db is the only access to SQL. A [DB] is the platform's database, PostgreSQL or SQLite, behind one body of
// SQL. A [Handle] is the only access to its rows: [DB.Tenant] returns one that reaches a single tenant's rows,
// [DB.Platform] one that reaches all of them. [OpenExternal] opens a database that an app brings for itself,
// [OpenReadOnly] one that an app reads documents from.
//
// A store call builds a [Batch], a list of statements that take effect together in one round trip. There are three ways
// to execute one:
//
//   - [Handle.Do] executes it alone, for reads and for writes that must not wait for others.
//   - [Handle.Write] groups it with concurrent ones into one commit, for the writes of calls and runs: a commit, which
//     waits for the disk, costs as much as several writes.
//   - [Handle.RunTx] runs a function in a transaction, for administration.
//
// On PostgreSQL each transaction begins with a statement that sets its role and tenant, for this transaction only, so
// that forced row-level security applies without a round trip of its own: a statement without a condition on the tenant
// still reaches no other tenant's rows. SQLite has no roles; there only the conditions of the statements separate the
// tenants.
//
// Every write has one of three outcomes: nil, it is committed; an error, it had no effect; [ErrUnknownOutcome], the
// caller must read the rows to find out. The exception is an error of the caller's own read function, which is returned
// although the batch is committed.
//
// SQL is written once for both engines: numbered parameters ($1), CAST instead of ::, text keys, times as microseconds
// since 1970 in BIGINT, and stoa_now() for the database's own time, which is the one clock of leases and schedules.
package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"
)

// ID is the immutable identifier of a tenant. It is the first column of the key of every tenant table.
type ID string

// Engine is a kind of database.
type Engine string

// The engines. The first two also name the folders of package migrations; MySQL, which includes MariaDB, is for
// [OpenReadOnly] only.
const (
	Postgres Engine = "postgres"
	SQLite   Engine = "sqlite"
	MySQL    Engine = "mysql"
)

// The roles of statements on PostgreSQL. Both are NOLOGIN and own nothing, so that forced row-level security applies to
// them; the policies are in migrations/postgres/0001_baseline.up.sql.
const (
	roleTenant   = "stoa_tenant"
	rolePlatform = "stoa_platform"
)

// ErrUnknownOutcome reports that the connection was lost, or the caller's context ended, while a transaction may have
// been committing. The caller must read the rows before it answers or repeats the write.
var ErrUnknownOutcome = errors.New("the outcome of the commit is unknown")

// ErrClosed reports that the database has been closed.
var ErrClosed = errors.New("the database is closed")

// Options configure a [DB]. The zero value works.
type Options struct {
	// MaxConns is the size of the connection pool on PostgreSQL; 0 takes pool_max_conns of the URL, else 16.
	MaxConns int
	// OnCommit is called after each commit of [Handle.Write] with the number of its batches. It may be nil.
	OnCommit func(ctx context.Context, batches int)
	// ResponseTimeout is how long an answer of PostgreSQL is waited for if the caller set no deadline; 30 seconds.
	ResponseTimeout time.Duration
	// ReadOnly is for looking at the database of a server that may be running: every write fails, and a SQLite file is
	// neither created nor locked.
	ReadOnly bool
	Log      *slog.Logger
}

// maxWriters is how many group commits may run at a time. On PostgreSQL one group is assembled while another is being
// committed; SQLite has one writing connection.
var maxWriters = map[Engine]int{Postgres: 2, SQLite: 1}

// engine is the part of a [DB] in which PostgreSQL and SQLite differ.
type engine interface {
	// runBatch executes c alone, in one transaction.
	runBatch(ctx context.Context, c *pendingBatch) error
	// runGroup executes calls in one transaction and sends the outcome of each on its channel done. A batch that fails
	// must not affect the others.
	runGroup(calls []*pendingBatch)
	// runTx runs f in a transaction under role and tenant.
	runTx(ctx context.Context, role string, tenant ID, f func(*Tx) error) error
	// readTx runs f in a transaction that only reads, and reads one state of the database.
	readTx(ctx context.Context, role string, tenant ID, f func(*Tx) error) error
	pingServer(ctx context.Context) error
	poolStats() Stats
	// closeEngine releases everything the engine acquired, also if opening it failed half way.
	closeEngine() error
}

// DB is a database. It is safe for concurrent use.
type DB struct {
	// engineKind, url, engine and coalescer are set when the DB is opened and read-only afterwards.
	engineKind Engine
	url        string
	engine     engine
	coalescer  *coalescer
	// outages is nil for databases of apps and in memory; read-only.
	outages *outageMonitor
	// quota is set by SetQuota before the first write; nil means no limit.
	quota Quota
}

// Open connects to the platform's database at url: sqlite://PATH, sqlite://:memory: or postgres://... . It does not
// migrate the schema. A SQLite file is locked for this process; if another process has it, Open fails. See
// [Options.ReadOnly] for looking at it nevertheless.
func Open(ctx context.Context, url string, o Options) (*DB, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	d := &DB{url: url}
	var err error
	switch scheme, remaining, _ := strings.Cut(url, "://"); scheme {
	case "sqlite":
		d.engineKind = SQLite
		options := platformFileOptions
		options.readOnly = o.ReadOnly
		d.engine, err = openSQLite(ctx, remaining, options)
		if remaining != ":memory:" {
			folder := filepath.Dir(remaining)
			if absolute, err := filepath.Abs(folder); err == nil {
				folder = absolute // the log is not read in the folder of this process
			}
			d.outages = newOutageMonitor(folder, o.Log)
		}
	case "postgres", "postgresql":
		d.engineKind = Postgres
		d.engine, err = openPostgres(ctx, url, o)
		d.outages = newOutageMonitor("", o.Log)
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

// Engine returns the engine that d runs on.
func (d *DB) Engine() Engine { return d.engineKind }

// URL returns the URL that d was opened with. It may contain a password.
func (d *DB) URL() string { return d.url }

// Tenant returns the handle that reaches the rows of the tenant id and no others.
func (d *DB) Tenant(id ID) *Handle { return &Handle{d: d, role: roleTenant, tenant: id} }

// Platform returns the handle that reaches every tenant's rows: for claiming and rescuing runs and for the operator.
func (d *DB) Platform() *Handle { return &Handle{d: d, role: rolePlatform} }

// Ping returns an error if the database does not answer or cannot write because its disk is full.
func (d *DB) Ping(ctx context.Context) error {
	if err := d.outages.observe(d.engine.pingServer(ctx), false); err != nil {
		return err
	}
	return d.outages.checkState()
}

// Outage returns the present outage as far as the calls of this process have shown it, [ErrDiskFull] or
// [ErrUnreachable], nil if there is none. It needs no statement.
func (d *DB) Outage() error {
	if d.outages == nil {
		return nil
	}
	d.outages.mu.Lock()
	defer d.outages.mu.Unlock()
	return d.outages.current
}

// FreeBytes returns the free space on the disk of a SQLite file. It returns false on PostgreSQL, for a database in memory,
// and if the file system does not answer.
func (d *DB) FreeBytes() (int64, bool) {
	if d.outages == nil {
		return 0, false
	}
	free, ok := d.outages.readFreeBytes()
	return int64(free), ok
}

// Stats are figures of PostgreSQL's connection pool; all zero on SQLite.
type Stats struct {
	Max, Open, Idle int64
	// Waits is how often no connection was free, Waited how long callers waited for one in total.
	Waits  int64
	Waited time.Duration
}

// Stats returns the figures of the connection pool at this moment.
func (d *DB) Stats() Stats { return d.engine.poolStats() }

// ErrBusy reports that [DB.EraseDeleted] could not finish because a transaction is reading an older state.
var ErrBusy = errors.New("the database is being read")

// EraseDeleted removes deleted rows from the database's files. On SQLite it rebuilds a file of at most 256 MiB and
// empties the write-ahead log; it returns [ErrBusy] while a reader prevents that. On PostgreSQL it does nothing: vacuum
// does it.
func (d *DB) EraseDeleted(ctx context.Context) error {
	if l, ok := d.engine.(*sqliteEngine); ok {
		return l.eraseDeleted(ctx)
	}
	return nil
}

// Close completes the queued writes and disconnects.
func (d *DB) Close() error {
	d.coalescer.closeAndWait()
	return d.engine.closeEngine()
}

// Handle executes statements for one tenant, or for all tenants if it came from [DB.Platform]. A store gets its handle
// from its constructor, so that no method can name another tenant.
type Handle struct {
	d      *DB
	role   string
	tenant ID
}

// Tenant returns the tenant whose rows h reaches, "" for the platform's handle.
func (h *Handle) Tenant() ID { return h.tenant }

// Engine returns the engine that h runs on.
func (h *Handle) Engine() Engine { return h.d.engineKind }

// Do executes b in one transaction and one round trip. It returns the [Quota]'s error if that refuses b.
func (h *Handle) Do(ctx context.Context, b *Batch) (err error) {
	if err := h.checkQuota(b); err != nil {
		return err
	}
	ctx, span := h.startSpan(ctx, b)
	if span != nil {
		defer func() { endSpan(span, err) }()
	}
	return h.d.outages.observe(h.d.engine.runBatch(ctx, &pendingBatch{role: h.role, tenant: h.tenant, batch: b}), b.writes)
}

// Write executes b in one transaction, grouped with concurrent writes into one commit. A statement that fails undoes
// its own batch and no other. If ctx ends first the error is ctx's own if the batch was not started, and
// [ErrUnknownOutcome] if it may still take effect; in both cases no row count is set and no read function is called
// after Write has returned. It returns the [Quota]'s error if that refuses b.
func (h *Handle) Write(ctx context.Context, b *Batch) (err error) {
	if err := h.checkQuota(b); err != nil {
		return err
	}
	ctx, span := h.startSpan(ctx, b)
	if span != nil {
		defer func() { endSpan(span, err) }()
	}
	err = h.d.coalescer.writeBatch(ctx, &pendingBatch{ctx: ctx, role: h.role, tenant: h.tenant, batch: b, done: make(chan error, 1), span: span})
	return h.d.outages.observe(err, true)
}

// RunTx runs f in a transaction that commits when f returns nil and is undone otherwise. It occupies a connection, on
// SQLite the only writing one, while f runs: it is for administration, not for calls.
func (h *Handle) RunTx(ctx context.Context, f func(tx *Tx) error) (err error) {
	ctx, span := h.startSpan(ctx, nil)
	if span != nil {
		defer func() { endSpan(span, err) }()
	}
	return h.d.outages.observe(h.d.engine.runTx(ctx, h.role, h.tenant, f), true)
}

// ReadTx runs f in a transaction that only reads: all queries of f read the state of the database at the first of them.
// It occupies a connection while f runs, on SQLite a reading one, so that writes continue. A query of f has the deadline
// of ctx, which must have one if f passes rows on to a slow reader.
func (h *Handle) ReadTx(ctx context.Context, f func(tx *Tx) error) (err error) {
	ctx, span := h.startSpan(ctx, nil)
	if span != nil {
		defer func() { endSpan(span, err) }()
	}
	return h.d.outages.observe(h.d.engine.readTx(ctx, h.role, h.tenant, f), false)
}

// Row is one row of a result, valid until the read function returns.
type Row interface {
	Scan(dest ...any) error
}

// Tx is a transaction of [Handle.RunTx] or [Handle.ReadTx], valid until its function returns.
type Tx struct {
	exec  func(ctx context.Context, sql string, args []any) (int64, error)
	query func(ctx context.Context, read func(Row) error, sql string, args []any) error
	// mergesRows means that InsertRows executes one statement for all rows.
	mergesRows bool
}

// InsertRows inserts rows, each with its values in the order of the columns of in. On PostgreSQL it is one statement.
func (tx *Tx) InsertRows(ctx context.Context, in *InsertTarget, rows ...[]any) error {
	if len(rows) == 0 {
		return nil
	}
	for _, row := range rows {
		in.checkRow(row)
	}
	if tx.mergesRows {
		sql, args := in.mergeRows(rows)
		_, err := tx.exec(ctx, sql, args)
		return err
	}
	for _, row := range rows {
		if _, err := tx.exec(ctx, in.SQL(), row); err != nil {
			return err
		}
	}
	return nil
}

// Exec executes a statement and returns the number of rows it affected.
func (tx *Tx) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	return tx.exec(ctx, sql, args)
}

// Query executes a statement and calls read for each row of its result. An error of read ends the iteration and is
// returned.
func (tx *Tx) Query(ctx context.Context, read func(Row) error, sql string, args ...any) error {
	return tx.query(ctx, read, sql, args)
}
