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

// bounds are how a SQLite file is used.
type bounds struct {
	erase         bool          // what is deleted is overwritten
	readers, idle int           // connections that read beside the one that writes, and how many of them stay open unused
	shared        bool          // other processes may use the file as well
	longest       time.Duration // that a call's statements take together; 0 = as long as they need, also without their caller
	tenant        *TenantFile   // nil = the file is the operator's
}

// platformFile is how the platform's own file is used.
var platformFile = bounds{readers: 4, idle: 4, erase: true}

var registerNow = sync.OnceValue(func() error {
	return sqlite.RegisterScalarFunction("stoa_now", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		return time.Now().UnixMicro(), nil
	})
})

// lite is a SQLite database: one connection writes, others read. In memory there is only the one.
type lite struct {
	lock    *os.File
	file    *tenantFile   // nil = the operator's file, or memory
	longest time.Duration // as in bounds
	write   *sql.DB
	read    *sql.DB // nil where the one connection reads as well, as in memory
	mu      sync.Mutex
	conn    *sql.Conn // the writing connection, under mu
	stmts   map[string]*sql.Stmt
	reader  sync.Map // SQL text to *sql.Stmt of the reading pool
}

func openSQLite(ctx context.Context, path string, use bounds) (engine, error) {
	if err := registerNow(); err != nil {
		return nil, fmt.Errorf("register stoa_now: %w", err)
	}
	l := &lite{stmts: map[string]*sql.Stmt{}, longest: use.longest}
	open := l.open
	switch {
	case path == ":memory:":
		open = l.openMemory
	case use.tenant != nil:
		open = l.openTenant
	}
	if err := open(ctx, path, use); err != nil {
		return nil, errors.Join(err, l.close())
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

func (l *lite) openMemory(ctx context.Context, path string, _ bounds) (err error) {
	if l.write, err = sql.Open("sqlite", dataSource("file::memory:", waitPragma, walPragma, syncPragma, cachePragma)); err != nil {
		return err
	}
	return l.beginWriting(ctx, path)
}

// open opens a file of the operator's.
func (l *lite) open(ctx context.Context, path string, use bounds) (err error) {
	if l.lock, err = lockFile(path, path, use.shared); err != nil {
		return err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if err := makePrivate(abs, path, 0); err != nil {
		return err
	}
	file := (&url.URL{Scheme: "file", Path: abs}).String()
	if use.readers > 0 {
		if l.read, err = sql.Open("sqlite", dataSource(file, waitPragma, readPragma, cachePragma)); err != nil {
			return err
		}
		l.read.SetMaxOpenConns(use.readers)
		l.read.SetMaxIdleConns(use.idle)
	}
	pragmas := []string{waitPragma, walPragma, syncPragma, cachePragma}
	if use.erase {
		pragmas = append(pragmas, erasePragma)
	}
	if l.write, err = sql.Open("sqlite", dataSource(file, pragmas...)); err != nil {
		return err
	}
	if err := l.beginWriting(ctx, path); err != nil {
		return err
	}
	return l.checkWritable(ctx, path)
}

// openTenant opens a file of a tenant's.
func (l *lite) openTenant(ctx context.Context, path string, use bounds) (err error) {
	if l.file, err = openTenantFile(path, use.tenant); err != nil {
		return err
	}
	if l.lock, err = lockFile(l.file.path(), path, use.shared); err != nil {
		return err
	}
	if err := makePrivate(l.file.path(), path, syscall.O_NOFOLLOW); err != nil {
		return err
	}
	if use.readers > 0 {
		if l.read, err = l.file.open(waitPragma, readPragma); err != nil {
			return err
		}
		l.read.SetMaxOpenConns(use.readers)
		l.read.SetMaxIdleConns(use.idle)
	}
	if l.write, err = l.file.open(waitPragma); err != nil {
		return err
	}
	if err := l.connect(ctx, path); err != nil {
		return err
	}
	if err := boundValues(l.conn); err != nil {
		return err
	}
	for _, pragma := range []string{walPragma, syncPragma, cachePragma} {
		if _, err := l.conn.ExecContext(ctx, "PRAGMA "+pragma); err != nil {
			return fmt.Errorf("open SQLite file %s: %w", path, err)
		}
	}
	return l.checkWritable(ctx, path)
}

// connect takes the connection that writes.
func (l *lite) connect(ctx context.Context, path string) (err error) {
	l.write.SetMaxOpenConns(1)
	l.write.SetConnMaxLifetime(0)
	if l.conn, err = l.write.Conn(ctx); err != nil {
		return fmt.Errorf("open SQLite file %s: %w", path, err)
	}
	return nil
}

// beginWriting takes the connection that writes and sees that it can.
func (l *lite) beginWriting(ctx context.Context, path string) error {
	if err := l.connect(ctx, path); err != nil {
		return err
	}
	if _, err := l.conn.ExecContext(ctx, "CREATE TEMP TABLE stoa_writable (x)"); err != nil {
		return fmt.Errorf("open SQLite file %s: %w", path, err)
	}
	return nil
}

func (l *lite) checkWritable(ctx context.Context, path string) error {
	if _, err := l.conn.ExecContext(ctx, "PRAGMA user_version = 1"); err != nil {
		return fmt.Errorf("the SQLite file %s cannot be written: %w", path, err)
	}
	return nil
}

// maxVacuum is the size of a file, in bytes, up to which erase rebuilds it. A larger one would keep writers waiting for long.
const maxVacuum = 256 << 20

// erase overwrites what is left of deleted rows. Most of it secure_delete has overwritten, but not the copies of rows that
// SQLite leaves between a page's rows when it splits the page: those go when the file is rebuilt.
func (l *lite) erase(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var size int64
	if err := l.conn.QueryRowContext(ctx, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").Scan(&size); err != nil {
		return err
	}
	if size <= maxVacuum {
		if _, err := l.conn.ExecContext(ctx, "VACUUM"); err != nil {
			return err
		}
	}
	return l.truncate(ctx)
}

// truncateWait is how long truncate waits for those who read, in milliseconds: nobody writes meanwhile.
const truncateWait = 100

// truncate brings what is in the journal beside the file into the file and empties the journal, which holds former states
// of pages until then. It returns [ErrBusy] while somebody reads an older state. l.mu is held.
func (l *lite) truncate(ctx context.Context) error {
	if _, err := l.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", truncateWait)); err != nil {
		return err
	}
	defer func() { _, _ = l.conn.ExecContext(context.WithoutCancel(ctx), "PRAGMA busy_timeout = 5000") }()
	var busy, frames, moved int64
	if err := l.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &moved); err != nil {
		return err
	}
	if busy != 0 {
		return ErrBusy
	}
	return nil
}

func (l *lite) ping(ctx context.Context) error {
	if l.read == nil {
		return nil
	}
	return l.read.PingContext(ctx)
}

func (l *lite) stats() Stats { return Stats{} }

// close brings everything into the one file and disconnects. A statement left open would keep its connection, and the
// journal beside the file with it.
func (l *lite) close() error {
	var errs []error
	for _, st := range l.stmts {
		errs = append(errs, st.Close())
	}
	l.reader.Range(func(_, st any) bool {
		errs = append(errs, st.(*sql.Stmt).Close())
		return true
	})
	if l.conn != nil {
		errs = append(errs, l.conn.Close())
	}
	for _, d := range []*sql.DB{l.read, l.write} {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	if l.lock != nil {
		errs = append(errs, l.lock.Close())
	}
	if l.file != nil {
		errs = append(errs, l.file.folder.release())
	}
	return errors.Join(errs...)
}

func sqliteDuplicate(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY || e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE
}
