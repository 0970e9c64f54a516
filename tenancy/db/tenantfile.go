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

// maxValueSize is the longest value, in bytes, that is written to or read from a tenant's file.
const maxValueSize = 64 << 20

// fileError reports a SQLite file that a guest may not use. What it says may be shown to whoever chose the file.
type fileError struct{ err error }

func (e *fileError) Error() string { return "the database file cannot be used: " + e.err.Error() }
func (e *fileError) Unwrap() error { return e.err }

// tenantFile is a SQLite file that a tenant has chosen, and may have written. What lies in it beside rows is never
// executed, and it is opened in the folder that was looked at, whatever becomes of the path to it.
type tenantFile struct {
	folder      *pinnedFolder
	name        string
	openFolder  func() (*os.File, error) // opens the folder by its path and looks at the file
	allowObject func(SchemaObject) error // looks at what lies in the file beside rows

	checkedVersion atomic.Pointer[int64] // the version of the schema that was looked at last; nil = none was
}

// SchemaObject is a table, an index, a view or a trigger in a SQLite file.
type SchemaObject struct {
	Type, Name string
	SQL        string // the statement that made it; empty of the indexes that SQLite makes by itself
}

// TenantFileRules is what a tenant's SQLite file is held to.
type TenantFileRules struct {
	// OpenFolder opens the folder of the file, having looked at the file. It is called before the file is made or opened and after
	// each connection has opened it.
	OpenFolder func() (*os.File, error)
	// AllowObject returns an error for what may not lie in the file beside rows. Of a table it sees what may be executed with it: checks,
	// generated columns, defaults.
	AllowObject func(SchemaObject) error
}

// openTenantFile looks at the file at path and pins its folder.
func openTenantFile(path string, use *TenantFileRules) (*tenantFile, error) {
	if err := registerPinnedVFS(); err != nil {
		return nil, err
	}
	dir, err := use.OpenFolder()
	if err != nil {
		return nil, &fileError{err}
	}
	folder, err := pinFolder(dir)
	if err != nil {
		return nil, err
	}
	return &tenantFile{folder: folder, name: filepath.Base(path), openFolder: use.OpenFolder, allowObject: use.AllowObject}, nil
}

// filePath returns the file's path through the pinned folder.
func (f *tenantFile) filePath() string { return f.folder.filePath(f.name) }

// checkFolder looks at the file anew.
func (f *tenantFile) checkFolder() error {
	dir, err := f.openFolder()
	if err != nil {
		return &fileError{err}
	}
	defer func() { _ = dir.Close() }()
	if !f.folder.isSameFolder(dir) {
		return &fileError{errors.New("the folder that was granted has moved")}
	}
	return nil
}

// openConnections returns connections to the file. The statements of setup run on each first; none may look at the schema, since no value
// of it is bounded yet.
func (f *tenantFile) openConnections(setup ...string) (*sql.DB, error) {
	query := url.Values{"vfs": {pinnedVFS}, "_defensive": {"1"}, "_pragma": append([]string{"trusted_schema(0)", "cell_size_check(1)"}, setup...)}
	dsn := (&url.URL{Scheme: "file", Path: f.filePath(), RawQuery: query.Encode()}).String()
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
	if err := c.file.checkFolder(); err != nil { // readers connect long after the file was opened first
		return nil, err
	}
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	if err := c.file.checkFolder(); err != nil { // a second name that was there only in that moment shows
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
	if checked := f.checkedVersion.Load(); checked != nil && *checked == version {
		return nil
	}
	err := query(func(r Row) error {
		var o SchemaObject
		if err := r.Scan(&o.Type, &o.Name, &o.SQL); err != nil {
			return err
		}
		if err := f.allowObject(o); err != nil {
			return &fileError{err}
		}
		return nil
	}, "SELECT type, name, COALESCE(sql, '') FROM sqlite_schema")
	if err == nil {
		f.checkedVersion.Store(&version)
	}
	return err
}

// limitValueSize holds values on a connection to [maxValueSize].
func limitValueSize(conn *sql.Conn) error {
	_, err := sqlite.Limit(conn, sqlite3.SQLITE_LIMIT_LENGTH, maxValueSize)
	return err
}

// readTenantSnapshot reads in one snapshot of a tenant's file. Statements are compiled for each call: a connection's values are bounded
// before it looks at the schema.
func (l *sqliteEngine) readTenantSnapshot(ctx context.Context, c *pendingBatch) error {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	conn, err := l.readDB.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := limitValueSize(conn); err != nil {
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
		return cmp.Or(readSQLiteRows(rows, read))
	}
	err = l.tenantFile.checkSchema(func(read func(Row) error, text string) error { return query(read, text) })
	for _, s := range c.batch.stmts {
		if err == nil {
			err = query(s.readRow, s.sql, s.args...)
		}
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
