package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
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

// sqliteOptions are how a SQLite file is used.
type sqliteOptions struct {
	erase         bool             // what is deleted is overwritten
	readers, idle int              // connections that read beside the one that writes, and how many of them stay open unused
	shared        bool             // other processes may use the file as well
	maxDuration   time.Duration    // that a call's statements take together; 0 = as long as they need, also without their caller
	tenantRules   *TenantFileRules // nil = the file is the operator's
}

// platformFileOptions is how the platform's own file is used.
var platformFileOptions = sqliteOptions{readers: 4, idle: 4, erase: true}

var registerNowFunc = sync.OnceValue(func() error {
	return sqlite.RegisterScalarFunction("stoa_now", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		return time.Now().UnixMicro(), nil
	})
})

// sqliteEngine is a SQLite database: one connection writes, others read. In memory there is only the one.
type sqliteEngine struct {
	fileLock    *os.File
	tenantFile  *tenantFile   // nil = the operator's file, or memory
	maxDuration time.Duration // as in bounds
	writeDB     *sql.DB
	readDB      *sql.DB // nil where the one connection reads as well, as in memory
	mu          sync.Mutex
	writeConn   *sql.Conn // the writing connection, under mu
	writeStmts  map[string]*sql.Stmt
	readStmts   sync.Map // SQL text to *sql.Stmt of the reading pool
}

func openSQLite(ctx context.Context, path string, use sqliteOptions) (engine, error) {
	if err := registerNowFunc(); err != nil {
		return nil, fmt.Errorf("register stoa_now: %w", err)
	}
	l := &sqliteEngine{writeStmts: map[string]*sql.Stmt{}, maxDuration: use.maxDuration}
	open := l.openFile
	switch {
	case path == ":memory:":
		open = l.openMemory
	case use.tenantRules != nil:
		open = l.openTenant
	}
	if err := open(ctx, path, use); err != nil {
		return nil, errors.Join(err, l.closeEngine())
	}
	return l, nil
}

// How each connection uses a file, and how the one that writes does so.
const (
	waitPragma  = "busy_timeout(5000)"
	readPragma  = "query_only(1)"
	cachePragma = "cache_size(-8000)"
	walPragma   = "journal_mode(WAL)"
	syncPragma  = "synchronous(FULL)"
	erasePragma = "secure_delete(1)"
	pragmaParam = "_pragma="
)

// dataSource returns what the driver is told to open: a file with the pragmas of a connection.
func dataSource(file string, pragmas ...string) string {
	return file + "?" + pragmaParam + strings.Join(pragmas, "&"+pragmaParam)
}

func (l *sqliteEngine) openMemory(ctx context.Context, path string, _ sqliteOptions) (err error) {
	if l.writeDB, err = sql.Open("sqlite", dataSource("file::memory:", waitPragma, walPragma, syncPragma, cachePragma)); err != nil {
		return err
	}
	return l.openWritableConn(ctx, path)
}

// openFile opens a file of the operator's.
func (l *sqliteEngine) openFile(ctx context.Context, path string, use sqliteOptions) (err error) {
	if l.fileLock, err = lockFile(path, path, use.shared); err != nil {
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
		if l.readDB, err = sql.Open("sqlite", dataSource(file, waitPragma, readPragma, cachePragma)); err != nil {
			return err
		}
		l.readDB.SetMaxOpenConns(use.readers)
		l.readDB.SetMaxIdleConns(use.idle)
	}
	pragmas := []string{waitPragma, walPragma, syncPragma, cachePragma}
	if use.erase {
		pragmas = append(pragmas, erasePragma)
	}
	if l.writeDB, err = sql.Open("sqlite", dataSource(file, pragmas...)); err != nil {
		return err
	}
	if err := l.openWritableConn(ctx, path); err != nil {
		return err
	}
	return l.checkWritable(ctx, path)
}

// openTenant opens a file of a tenant's.
func (l *sqliteEngine) openTenant(ctx context.Context, path string, use sqliteOptions) (err error) {
	if l.tenantFile, err = openTenantFile(path, use.tenantRules); err != nil {
		return err
	}
	if l.fileLock, err = lockFile(l.tenantFile.filePath(), path, use.shared); err != nil {
		return err
	}
	if err := createPrivateFile(l.tenantFile.filePath(), path, syscall.O_NOFOLLOW); err != nil {
		return err
	}
	if use.readers > 0 {
		if l.readDB, err = l.tenantFile.openConnections(waitPragma, readPragma); err != nil {
			return err
		}
		l.readDB.SetMaxOpenConns(use.readers)
		l.readDB.SetMaxIdleConns(use.idle)
	}
	if l.writeDB, err = l.tenantFile.openConnections(waitPragma); err != nil {
		return err
	}
	if err := l.openWriteConn(ctx, path); err != nil {
		return err
	}
	if err := limitValueSize(l.writeConn); err != nil {
		return err
	}
	for _, pragma := range []string{walPragma, syncPragma, cachePragma} {
		if _, err := l.writeConn.ExecContext(ctx, "PRAGMA "+pragma); err != nil {
			return fmt.Errorf("open SQLite file %s: %w", path, err)
		}
	}
	return l.checkWritable(ctx, path)
}

// openWriteConn takes the connection that writes.
func (l *sqliteEngine) openWriteConn(ctx context.Context, path string) (err error) {
	l.writeDB.SetMaxOpenConns(1)
	l.writeDB.SetConnMaxLifetime(0)
	if l.writeConn, err = l.writeDB.Conn(ctx); err != nil {
		return fmt.Errorf("open SQLite file %s: %w", path, err)
	}
	return nil
}

// openWritableConn takes the connection that writes and sees that it can.
func (l *sqliteEngine) openWritableConn(ctx context.Context, path string) error {
	if err := l.openWriteConn(ctx, path); err != nil {
		return err
	}
	if _, err := l.writeConn.ExecContext(ctx, "CREATE TEMP TABLE stoa_writable (x)"); err != nil {
		return fmt.Errorf("open SQLite file %s: %w", path, err)
	}
	return nil
}

func (l *sqliteEngine) checkWritable(ctx context.Context, path string) error {
	if _, err := l.writeConn.ExecContext(ctx, "PRAGMA user_version = 1"); err != nil {
		return fmt.Errorf("the SQLite file %s cannot be written: %w", path, err)
	}
	return nil
}

// maxVacuumSize is the size of a file, in bytes, up to which erase rebuilds it. A larger one would keep writers waiting for long.
const maxVacuumSize = 256 << 20

// eraseDeleted overwrites what is left of deleted rows. Most of it secure_delete has overwritten, but not the copies of rows that
// SQLite leaves between a page's rows when it splits the page: those go when the file is rebuilt.
func (l *sqliteEngine) eraseDeleted(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var size int64
	if err := l.writeConn.QueryRowContext(ctx, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").Scan(&size); err != nil {
		return err
	}
	if size <= maxVacuumSize {
		if _, err := l.writeConn.ExecContext(ctx, "VACUUM"); err != nil {
			return err
		}
	}
	return l.truncateWAL(ctx)
}

// truncateWait is how long truncate waits for those who read, in milliseconds: nobody writes meanwhile.
const truncateWait = 100

// truncateWAL brings what is in the journal beside the file into the file and empties the journal, which holds former states
// of pages until then. It returns [ErrBusy] while somebody reads an older state. l.mu is held.
func (l *sqliteEngine) truncateWAL(ctx context.Context) error {
	if _, err := l.writeConn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", truncateWait)); err != nil {
		return err
	}
	defer func() { _, _ = l.writeConn.ExecContext(context.WithoutCancel(ctx), "PRAGMA busy_timeout = 5000") }()
	var busy, frames, moved int64
	if err := l.writeConn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &moved); err != nil {
		return err
	}
	if busy != 0 {
		return ErrBusy
	}
	return nil
}

func (l *sqliteEngine) pingServer(ctx context.Context) error {
	if l.readDB == nil {
		return nil
	}
	return l.readDB.PingContext(ctx)
}

func (l *sqliteEngine) poolStats() Stats { return Stats{} }

// closeEngine brings everything into the one file and disconnects. A statement left open would keep its connection, and the
// journal beside the file with it.
func (l *sqliteEngine) closeEngine() error {
	var errs []error
	for _, st := range l.writeStmts {
		errs = append(errs, st.Close())
	}
	l.readStmts.Range(func(_, st any) bool {
		errs = append(errs, st.(*sql.Stmt).Close())
		return true
	})
	if l.writeConn != nil {
		errs = append(errs, l.writeConn.Close())
	}
	for _, d := range []*sql.DB{l.readDB, l.writeDB} {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	if l.fileLock != nil {
		errs = append(errs, l.fileLock.Close())
	}
	if l.tenantFile != nil {
		errs = append(errs, l.tenantFile.folder.releaseFolder())
	}
	return errors.Join(errs...)
}

func isSQLiteDuplicate(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY || e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE
}
