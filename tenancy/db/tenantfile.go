package db

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// maxValue is the longest value, in bytes, that is written to or read from a tenant's file.
const maxValue = 64 << 20

// fileError reports a SQLite file that a guest may not use. What it says may be shown to whoever chose the file.
type fileError struct{ why error }

func (e *fileError) Error() string { return "the database file cannot be used: " + e.why.Error() }
func (e *fileError) Unwrap() error { return e.why }

// tenantFile is a SQLite file that a tenant has chosen, and may have written. What lies in it beside rows is never
// executed, and it is opened in the folder that was looked at, whatever becomes of the path to it.
type tenantFile struct {
	folder *pinnedFolder
	name   string
	look   func() (*os.File, error) // opens the folder by its path and looks at the file
	allow  func(SchemaObject) error // looks at what lies in the file beside rows

	checked atomic.Pointer[int64] // the version of the schema that was looked at last; nil = none was
}

// SchemaObject is a table, an index, a view or a trigger in a SQLite file.
type SchemaObject struct {
	Type, Name string
	SQL        string // the statement that made it; empty of the indexes that SQLite makes by itself
}

// TenantFile is what a tenant's SQLite file is held to.
type TenantFile struct {
	// Folder opens the folder of the file, having looked at the file. It is called before the file is made or opened and after
	// each connection has opened it.
	Folder func() (*os.File, error)
	// Allow returns an error for what may not lie in the file beside rows. Of a table it sees what may be executed with it: checks,
	// generated columns, defaults.
	Allow func(SchemaObject) error
}

// openTenantFile looks at the file at path and pins its folder.
func openTenantFile(path string, use *TenantFile) (*tenantFile, error) {
	if err := registerPinnedVFS(); err != nil {
		return nil, err
	}
	dir, err := use.Folder()
	if err != nil {
		return nil, &fileError{err}
	}
	folder, err := pinFolder(dir)
	if err != nil {
		return nil, err
	}
	return &tenantFile{folder: folder, name: filepath.Base(path), look: use.Folder, allow: use.Allow}, nil
}

// path returns the file's path through the pinned folder.
func (f *tenantFile) path() string { return f.folder.file(f.name) }

// check looks at the file anew.
func (f *tenantFile) check() error {
	dir, err := f.look()
	if err != nil {
		return &fileError{err}
	}
	defer func() { _ = dir.Close() }()
	if !f.folder.is(dir) {
		return &fileError{errors.New("the folder that was granted has moved")}
	}
	return nil
}

// open returns connections to the file. The statements of setup run on each first; none may look at the schema, since no value
// of it is bounded yet.
func (f *tenantFile) open(setup ...string) (*sql.DB, error) {
	query := url.Values{"vfs": {pinnedVFS}, "_defensive": {"1"}, "_pragma": append([]string{"trusted_schema(0)", "cell_size_check(1)"}, setup...)}
	dsn := (&url.URL{Scheme: "file", Path: f.path(), RawQuery: query.Encode()}).String()
	plain, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	connector := &tenantConnector{driver: plain.Driver(), dsn: dsn, file: f}
	return sql.OpenDB(connector), plain.Close()
}

// tenantConnector opens connections to a tenant's file.
type tenantConnector struct {
	driver driver.Driver
	dsn    string
	file   *tenantFile
}

// Driver implements [driver.Connector].
func (c *tenantConnector) Driver() driver.Driver { return c.driver }

// Connect implements [driver.Connector].
func (c *tenantConnector) Connect(context.Context) (driver.Conn, error) {
	if err := c.file.check(); err != nil { // readers connect long after the file was opened first
		return nil, err
	}
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	if err := c.file.check(); err != nil { // a second name that was there only in that moment shows
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// checkSchema looks at what lies in the file beside rows, if it has changed since somebody looked last. It runs first in each
// transaction, so that nothing can change before the transaction's other statements.
func (f *tenantFile) checkSchema(query func(read func(Row) error, sql string) error) error {
	var version int64
	if err := query(func(r Row) error { return r.Scan(&version) }, "PRAGMA schema_version"); err != nil {
		return err
	}
	if checked := f.checked.Load(); checked != nil && *checked == version {
		return nil
	}
	err := query(func(r Row) error {
		var o SchemaObject
		if err := r.Scan(&o.Type, &o.Name, &o.SQL); err != nil {
			return err
		}
		if err := f.allow(o); err != nil {
			return &fileError{err}
		}
		return nil
	}, "SELECT type, name, COALESCE(sql, '') FROM sqlite_schema")
	if err == nil {
		f.checked.Store(&version)
	}
	return err
}

// boundValues holds values on a connection to [maxValue].
func boundValues(conn *sql.Conn) error {
	_, err := sqlite.Limit(conn, sqlite3.SQLITE_LIMIT_LENGTH, maxValue)
	return err
}

// viewTenant reads in one snapshot of a tenant's file. Statements are compiled for each call: a connection's values are bounded
// before it looks at the schema.
func (l *lite) viewTenant(ctx context.Context, c *call) error {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	conn, err := l.read.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := boundValues(conn); err != nil {
		return err
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	query := func(read func(Row) error, text string, args ...any) error {
		rows, err := tx.QueryContext(ctx, text, args...)
		if err != nil {
			return err
		}
		return cmp.Or(readRows(rows, read))
	}
	err = l.file.checkSchema(func(read func(Row) error, text string) error { return query(read, text) })
	for _, s := range c.batch.stmts {
		if err == nil {
			err = query(s.read, s.sql, s.args...)
		}
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
