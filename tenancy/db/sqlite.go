package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// sqliteOptions are the ways in which a SQLite file is used.
type sqliteOptions struct {
	// erase overwrites deleted rows (PRAGMA secure_delete).
	erase bool
	// readers is the number of connections for reading, in addition to the one that writes; idle is how many of them
	// stay open unused.
	readers, idle int
	// shared allows other processes to use the file as well.
	shared bool
	// maxDuration bounds the statements of one batch together; 0 means that they run to their end, also if their caller
	// has gone.
	maxDuration time.Duration
	// readOnly opens a trusted file that exists, for reading, without a lock.
	readOnly bool
	// tenantRules restrict a file that a tenant chose; nil means that the file is the operator's and trusted.
	tenantRules *TenantFileRules
}

// platformFileOptions are the options of the platform's own file.
var platformFileOptions = sqliteOptions{readers: 4, idle: 4, erase: true}

// errNowFunc is the error of registering the SQL function stoa_now(), microseconds since 1970, for all connections of the
// process. Unlike on PostgreSQL it is the time of the call, not of the transaction's start. It is registered before any
// connection is opened, because the driver does not synchronize the two.
var errNowFunc = sqlite.RegisterScalarFunction("stoa_now", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
	return time.Now().UnixMicro(), nil
})

// sqliteEngine executes batches on SQLite. One connection writes, others read in WAL mode, where readers do not block
// the writer. A database in memory has only the one connection.
type sqliteEngine struct {
	fileLock *os.File
	// tenantFile is nil for an operator's file and in memory.
	tenantFile *tenantFile
	// maxDuration is that of sqliteOptions.
	maxDuration time.Duration
	writeDB     *sql.DB
	// readDB is nil if the writing connection reads as well, as in memory.
	readDB *sql.DB
	// mu serialises the use of the writing connection and guards writeConn and writeStmts.
	mu sync.Mutex
	// writeConn is the writing connection.
	writeConn *sql.Conn
	// writeStmts holds the prepared statements of writeConn by their SQL. The code has a fixed set of statements, so
	// that it is bounded.
	writeStmts map[string]*sql.Stmt
	// readStmts maps SQL text to the prepared *sql.Stmt of readDB.
	readStmts sync.Map
}

// openSQLite opens the file at path, or ":memory:", in one of three ways: in memory, a trusted file, or a tenant's
// file.
func openSQLite(ctx context.Context, path string, use sqliteOptions) (engine, error) {
	if errNowFunc != nil {
		return nil, fmt.Errorf("register stoa_now: %w", errNowFunc)
	}
	l := &sqliteEngine{writeStmts: map[string]*sql.Stmt{}, maxDuration: use.maxDuration}
	open := l.openFile
	switch {
	case path == ":memory:":
		open = l.openMemory
	case use.tenantRules != nil:
		open = l.openTenant
	case use.readOnly:
		open = l.openExisting
	}
	if err := open(ctx, path, use); err != nil {
		return nil, errors.Join(err, l.closeEngine())
	}
	return l, nil
}

// The pragmas of connections. WAL with synchronous=FULL makes each commit durable
// (docs/decisions/sqlite-synchronous.md).
const (
	waitPragma  = "busy_timeout(5000)"
	readPragma  = "query_only(1)"
	cachePragma = "cache_size(-8000)"
	walPragma   = "journal_mode(WAL)"
	syncPragma  = "synchronous(FULL)"
	erasePragma = "secure_delete(1)"
	pragmaParam = "_pragma="
)

// dataSource returns the driver's name of a file with the pragmas of its connections.
func dataSource(file string, pragmas ...string) string {
	return file + "?" + pragmaParam + strings.Join(pragmas, "&"+pragmaParam)
}

// openMemory opens a database in memory, which lives as long as its one connection.
func (e *sqliteEngine) openMemory(ctx context.Context, path string, _ sqliteOptions) (err error) {
	if e.writeDB, err = sql.Open("sqlite", dataSource("file::memory:", waitPragma, walPragma, syncPragma, cachePragma)); err != nil {
		return err
	}
	return e.openWritableConn(ctx, path)
}

// openFile opens a trusted file: it locks it, creates it if needed, and opens the reading and writing connections.
func (e *sqliteEngine) openFile(ctx context.Context, path string, use sqliteOptions) (err error) {
	if e.fileLock, err = lockFile(path, path, use.shared); err != nil {
		return err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if err := createPrivateFile(abs, path, 0); err != nil {
		return err
	}
	file := (&url.URL{Scheme: "file", Path: abs}).String()
	if use.readers > 0 {
		if e.readDB, err = sql.Open("sqlite", dataSource(file, waitPragma, readPragma, cachePragma)); err != nil {
			return err
		}
		e.readDB.SetMaxOpenConns(use.readers)
		e.readDB.SetMaxIdleConns(use.idle)
	}
	pragmas := []string{waitPragma, walPragma, syncPragma, cachePragma}
	if use.erase {
		pragmas = append(pragmas, erasePragma)
	}
	if e.writeDB, err = sql.Open("sqlite", dataSource(file, pragmas...)); err != nil {
		return err
	}
	if err := e.openWritableConn(ctx, path); err != nil {
		return err
	}
	return e.checkWritable(ctx, path)
}

// readOnlySource returns the driver's name of a trusted file, at an absolute path, for reading, also while another process
// serves it. SQLite would create the files of the write-ahead log for a reader, too, and leave them; a database without such
// a log is complete in itself and opened as one that does not change.
func readOnlySource(path string) string {
	source := dataSource((&url.URL{Scheme: "file", Path: path}).String(), waitPragma, readPragma, cachePragma) + "&mode=ro"
	if _, err := os.Stat(path + "-wal"); errors.Is(err, fs.ErrNotExist) {
		source += "&immutable=1"
	}
	return source
}

// openExisting opens a trusted file for reading.
func (e *sqliteEngine) openExisting(ctx context.Context, path string, use sqliteOptions) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if _, err := os.Stat(abs); err != nil {
		return fmt.Errorf("the SQLite file %s cannot be read: %w", path, err)
	}
	file := readOnlySource(abs)
	for _, pool := range []**sql.DB{&e.readDB, &e.writeDB} {
		if *pool, err = sql.Open("sqlite", file); err != nil {
			return err
		}
		(*pool).SetMaxOpenConns(use.readers)
	}
	return e.openWriteConn(ctx, path)
}

// openTenant opens a tenant's file through its pinned folder, with the rules of [TenantFileRules]. The size of values
// is limited before any pragma reads the schema, which the tenant may have written.
func (e *sqliteEngine) openTenant(ctx context.Context, path string, use sqliteOptions) (err error) {
	if e.tenantFile, err = openTenantFile(path, use.tenantRules); err != nil {
		return err
	}
	if e.fileLock, err = lockFile(e.tenantFile.filePath(), path, use.shared); err != nil {
		return err
	}
	if err := createPrivateFile(e.tenantFile.filePath(), path, syscall.O_NOFOLLOW); err != nil {
		return err
	}
	if use.readers > 0 {
		if e.readDB, err = e.tenantFile.openConnections("rwc", waitPragma, readPragma); err != nil {
			return err
		}
		e.readDB.SetMaxOpenConns(use.readers)
		e.readDB.SetMaxIdleConns(use.idle)
	}
	if e.writeDB, err = e.tenantFile.openConnections("rwc", waitPragma); err != nil {
		return err
	}
	if err := e.openWriteConn(ctx, path); err != nil {
		return err
	}
	if err := limitValueSize(e.writeConn); err != nil {
		return err
	}
	for _, pragma := range []string{walPragma, syncPragma, cachePragma} {
		if _, err := e.writeConn.ExecContext(ctx, "PRAGMA "+pragma); err != nil {
			return fmt.Errorf("open SQLite file %s: %w", path, err)
		}
	}
	return e.checkWritable(ctx, path)
}

// openWriteConn takes the single writing connection out of its pool for the lifetime of the engine.
func (e *sqliteEngine) openWriteConn(ctx context.Context, path string) (err error) {
	e.writeDB.SetMaxOpenConns(1)
	e.writeDB.SetConnMaxLifetime(0)
	if e.writeConn, err = e.writeDB.Conn(ctx); err != nil {
		return fmt.Errorf("open SQLite file %s: %w", path, err)
	}
	return nil
}

// openWritableConn takes the writing connection and creates a temporary table, which fails if the connection cannot
// write.
func (e *sqliteEngine) openWritableConn(ctx context.Context, path string) error {
	if err := e.openWriteConn(ctx, path); err != nil {
		return err
	}
	if _, err := e.writeConn.ExecContext(ctx, "CREATE TEMP TABLE stoa_writable (x)"); err != nil {
		return fmt.Errorf("open SQLite file %s: %w", path, err)
	}
	return nil
}

// checkWritable writes into the file, so that a read-only one is found at the start and not at the first call.
func (e *sqliteEngine) checkWritable(ctx context.Context, path string) error {
	if _, err := e.writeConn.ExecContext(ctx, "PRAGMA user_version = 1"); err != nil {
		return fmt.Errorf("the SQLite file %s cannot be written: %w", path, err)
	}
	return nil
}

// maxVacuumSize is the size of a file, in bytes, up to which eraseDeleted rebuilds it; a larger one would block writers
// for too long.
const maxVacuumSize = 256 << 20

// eraseDeleted removes what is left of deleted rows. secure_delete overwrites most of it, but not the copies of rows
// that remain in a page's free space when SQLite splits the page; VACUUM, which rebuilds the file, removes those.
func (e *sqliteEngine) eraseDeleted(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var size int64
	if err := e.writeConn.QueryRowContext(ctx, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").Scan(&size); err != nil {
		return err
	}
	if size <= maxVacuumSize {
		if _, err := e.writeConn.ExecContext(ctx, "VACUUM"); err != nil {
			return err
		}
	}
	return e.truncateWAL(ctx)
}

// truncateWait is how long truncateWAL waits for readers, in milliseconds; writers wait meanwhile.
const truncateWait = 100

// truncateWAL moves the write-ahead log into the file and empties it; until then it holds former versions of pages. It
// returns [ErrBusy] while a transaction reads an older state. The caller holds e.mu.
func (e *sqliteEngine) truncateWAL(ctx context.Context) error {
	if _, err := e.writeConn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", truncateWait)); err != nil {
		return err
	}
	defer func() { _, _ = e.writeConn.ExecContext(context.WithoutCancel(ctx), "PRAGMA busy_timeout = 5000") }()
	var busy, frames, moved int64
	if err := e.writeConn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &moved); err != nil {
		return err
	}
	if busy != 0 {
		return ErrBusy
	}
	return nil
}

func (e *sqliteEngine) pingServer(ctx context.Context) error {
	if e.readDB == nil {
		return nil
	}
	return e.readDB.PingContext(ctx)
}

func (e *sqliteEngine) poolStats() Stats { return Stats{} }

// closeEngine closes everything openSQLite acquired, also if that failed half way. Statements are closed first: an open
// one would keep its connection open, and the write-ahead log would not be merged into the file.
func (e *sqliteEngine) closeEngine() error {
	var errs []error
	for _, st := range e.writeStmts {
		errs = append(errs, st.Close())
	}
	e.readStmts.Range(func(_, st any) bool {
		errs = append(errs, st.(*sql.Stmt).Close())
		return true
	})
	if e.writeConn != nil {
		errs = append(errs, e.writeConn.Close())
	}
	for _, d := range []*sql.DB{e.readDB, e.writeDB} {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	if e.fileLock != nil {
		errs = append(errs, e.fileLock.Close())
	}
	if e.tenantFile != nil {
		errs = append(errs, e.tenantFile.folder.releaseFolder())
	}
	return errors.Join(errs...)
}

// isSQLiteDuplicate reports whether err is a violation of a primary key or a unique constraint.
func isSQLiteDuplicate(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY || e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE
}
