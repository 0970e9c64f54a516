package db

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// bounds are how a SQLite file is used.
type bounds struct {
	readers, idle int  // connections that read beside the one that writes, and how many of them stay open unused
	shared        bool // other processes may use the file as well
}

// platformFile is how the platform's own file is used.
var platformFile = bounds{readers: 4, idle: 4}

var registerNow = sync.OnceValue(func() error {
	return sqlite.RegisterScalarFunction("stoa_now", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		return time.Now().UnixMicro(), nil
	})
})

// lite is a SQLite database: one connection writes, others read. In memory there is only the one.
type lite struct {
	lock   *os.File
	write  *sql.DB
	read   *sql.DB // nil where the one connection reads as well, as in memory
	mu     sync.Mutex
	conn   *sql.Conn // the writing connection, under mu
	stmts  map[string]*sql.Stmt
	reader sync.Map // SQL text to *sql.Stmt of the reading pool
}

func openSQLite(ctx context.Context, path string, use bounds) (engine, error) {
	if err := registerNow(); err != nil {
		return nil, fmt.Errorf("register stoa_now: %w", err)
	}
	l := &lite{stmts: map[string]*sql.Stmt{}}
	if err := l.open(ctx, path, use); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *lite) open(ctx context.Context, path string, use bounds) (err error) {
	dsn := "file::memory:?"
	if path != ":memory:" {
		if l.lock, err = lockFile(path, use.shared); err != nil {
			return err
		}
		abs, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		if err := private(abs); err != nil {
			return err
		}
		dsn = (&url.URL{Scheme: "file", Path: abs}).String() + "?"
		if err := l.openReaders(dsn, use); err != nil {
			return err
		}
	}
	l.write, err = sql.Open("sqlite", dsn+"_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=cache_size(-8000)")
	if err != nil {
		return err
	}
	l.write.SetMaxOpenConns(1)
	l.write.SetConnMaxLifetime(0)
	if l.conn, err = l.write.Conn(ctx); err != nil {
		return fmt.Errorf("open SQLite file %s: %w", path, err)
	}
	if _, err := l.conn.ExecContext(ctx, "CREATE TEMP TABLE stoa_writable (x)"); err != nil {
		return fmt.Errorf("open SQLite file %s: %w", path, err)
	}
	if path == ":memory:" {
		return nil
	}
	if _, err := l.conn.ExecContext(ctx, "PRAGMA user_version = 1"); err != nil {
		return fmt.Errorf("the SQLite file %s cannot be written: %w", path, err)
	}
	return nil
}

func (l *lite) openReaders(dsn string, use bounds) (err error) {
	if use.readers == 0 {
		return nil
	}
	if l.read, err = sql.Open("sqlite", dsn+"_pragma=busy_timeout(5000)&_pragma=query_only(1)&_pragma=cache_size(-8000)"); err != nil {
		return err
	}
	l.read.SetMaxOpenConns(use.readers)
	l.read.SetMaxIdleConns(use.idle)
	return nil
}

func (l *lite) run(ctx context.Context, c *call) error {
	if !c.batch.writes && l.read != nil {
		return l.view(ctx, c)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.inTx(func() error { return l.apply(c) })
	return cmp.Or(err, c.readErr)
}

// view reads in one snapshot.
func (l *lite) view(ctx context.Context, c *call) error {
	// Prepared before the transaction begins: preparing takes a connection, and a transaction that waits for a second
	// one while it holds its first can wait for ever.
	prepared := make([]*sql.Stmt, len(c.batch.stmts))
	for i, s := range c.batch.stmts {
		var err error
		if prepared[i], err = l.forReading(ctx, s.sql); err != nil {
			return err
		}
	}
	if len(prepared) == 1 {
		return look(ctx, prepared[0], c.batch.stmts[0])
	}
	tx, err := l.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	for i, s := range c.batch.stmts {
		if err := look(ctx, tx.StmtContext(ctx, prepared[i]), s); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}

// forReading returns the statement of the reading connections for sql.
func (l *lite) forReading(ctx context.Context, text string) (*sql.Stmt, error) {
	if st, ok := l.reader.Load(text); ok {
		return st.(*sql.Stmt), nil
	}
	p, err := l.read.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	st, loaded := l.reader.LoadOrStore(text, p)
	if loaded {
		_ = p.Close()
	}
	return st.(*sql.Stmt), nil
}

func look(ctx context.Context, prepared *sql.Stmt, s stmt) error {
	rows, err := prepared.QueryContext(ctx, s.args...)
	if err != nil {
		return err
	}
	return cmp.Or(readRows(rows, s.read))
}

// readRows calls read for each row. It tells an error of read, which undoes nothing, from one of the database.
func readRows(rows *sql.Rows, read func(Row) error) (readErr, err error) {
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := read(rows); err != nil {
			return err, nil
		}
	}
	return nil, rows.Err()
}

// errGroupUndone says that a failure undid the whole transaction, as that of a full disk does.
var errGroupUndone = errors.New("the transaction was undone")

// runGroup commits calls together; a savepoint around each keeps one's failure from the others. Where it cannot, each
// goes alone.
func (l *lite) runGroup(calls []*call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(calls) == 1 {
		err := l.inTx(func() error { return l.apply(calls[0]) })
		calls[0].done <- cmp.Or(err, calls[0].readErr)
		return
	}
	errs := make([]error, len(calls))
	err := l.inTx(func() error {
		for i, c := range calls {
			if err := l.exec("SAVEPOINT one"); err != nil {
				return err
			}
			if errs[i] = l.apply(c); errs[i] != nil {
				if l.exec("ROLLBACK TO one") != nil {
					return errGroupUndone
				}
			}
			if err := l.exec("RELEASE one"); err != nil {
				return err
			}
		}
		return nil
	})
	for i, c := range calls {
		if errors.Is(err, errGroupUndone) {
			c.done <- cmp.Or(l.inTx(func() error { return l.apply(c) }), c.readErr)
			continue
		}
		c.done <- cmp.Or(err, errs[i], c.readErr)
	}
}

// inTx runs f in a transaction of the writing connection, which ends even if f panics. l.mu is held.
func (l *lite) inTx(f func() error) error {
	if err := l.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	committed := false
	defer func() {
		if !committed {
			_ = l.exec("ROLLBACK") // SQLite may have done it already
		}
	}()
	err := f()
	if err == nil {
		err = l.exec("COMMIT")
	}
	committed = err == nil
	return err
}

func (l *lite) apply(c *call) error {
	for _, s := range c.batch.stmts {
		for _, row := range s.rows {
			if _, err := l.execArgs(s.sql, row); err != nil {
				return err
			}
		}
		if s.about != nil {
			continue
		}
		if s.read != nil {
			readErr, err := l.readWith(c.reader(s), s.sql, s.args)
			if err != nil {
				return err
			}
			c.readErr = cmp.Or(c.readErr, readErr)
			continue
		}
		n, err := l.execArgs(s.sql, s.args)
		if err != nil {
			return err
		}
		c.count(s.n, n)
	}
	return nil
}

func (l *lite) exec(sql string) error {
	_, err := l.execArgs(sql, nil)
	return err
}

func (l *lite) execArgs(sql string, args []any) (int64, error) {
	st, err := l.prepared(sql)
	if err != nil {
		return 0, err
	}
	res, err := st.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (l *lite) readWith(read func(Row) error, sql string, args []any) (readErr, err error) {
	st, err := l.prepared(sql)
	if err != nil {
		return nil, err
	}
	rows, err := st.QueryContext(context.Background(), args...)
	if err != nil {
		return nil, err
	}
	return readRows(rows, read)
}

func (l *lite) prepared(sql string) (*sql.Stmt, error) {
	if st, ok := l.stmts[sql]; ok {
		return st, nil
	}
	st, err := l.conn.PrepareContext(context.Background(), sql)
	if err == nil {
		l.stmts[sql] = st
	}
	return st, err
}

func (l *lite) tx(ctx context.Context, _ string, _ ID, f func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inTx(func() error {
		return f(&Tx{
			exec: func(_ context.Context, sql string, args []any) (int64, error) { return l.execArgs(sql, args) },
			query: func(_ context.Context, read func(Row) error, sql string, args []any) error {
				return cmp.Or(l.readWith(read, sql, args))
			},
		})
	})
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
	return errors.Join(errs...)
}

func sqliteDuplicate(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY || e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE
}
