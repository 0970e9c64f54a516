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

// maxValueSize bounds a value that is written to or read from a tenant's file, in bytes.
const maxValueSize = 64 << 20

// fileError reports that a tenant's SQLite file may not be used. Its text may be shown to the tenant.
type fileError struct{ err error }

func (e *fileError) Error() string { return "the database file cannot be used: " + e.err.Error() }
func (e *fileError) Unwrap() error { return e.err }

// tenantFile is a SQLite file that a tenant chose and may have written. A SQLite schema can contain code (views,
// triggers, generated columns), so it is checked before any statement uses it, and the file is opened in the folder
// that was checked, whatever becomes of the path.
type tenantFile struct {
	folder *pinnedFolder
	name   string
	// openFolder opens the folder by its path and checks the file; it is [TenantFileRules.OpenFolder].
	openFolder func() (*os.File, error)
	// allowObject checks one object of the schema; it is [TenantFileRules.AllowObject].
	allowObject func(SchemaObject) error

	// checkedVersion is the schema_version that was checked last; nil before the first check.
	checkedVersion atomic.Pointer[int64]
}

// SchemaObject is a table, an index, a view or a trigger in a SQLite file: a row of sqlite_schema.
type SchemaObject struct {
	Type, Name string
	// SQL is the statement that created it, "" for indexes that SQLite creates itself.
	SQL string
}

// TenantFileRules are the conditions on a tenant's SQLite file.
type TenantFileRules struct {
	// OpenFolder checks the file and opens its folder. It is called before the file is created or opened, and again
	// after each connection has opened it.
	OpenFolder func() (*os.File, error)
	// AllowObject returns an error for an object that the file may not contain. From a table's SQL it sees what would
	// be executed with it: checks, generated columns and defaults.
	AllowObject func(SchemaObject) error
}

// openTenantFile checks the file at path and pins its folder.
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

// checkFolder checks the file again and that its path still leads to the pinned folder.
func (f *tenantFile) checkFolder() error {
	dir, err := f.openFolder()
	if err != nil {
		return &fileError{err}
	}
	defer func() { _ = dir.Close() }()
	if !f.folder.isSameFolder(dir) {
		return &fileError{errors.New("the granted folder was moved")}
	}
	return nil
}

// openConnections returns a pool of connections to the file in the given mode, rwc or ro. The statements of setup run first on each; they must not
// read the schema, because the size of values is not limited yet. SQLite's own defences are enabled: defensive mode
// forbids writes to the schema, trusted_schema=0 unsafe functions in it.
func (f *tenantFile) openConnections(mode string, setup ...string) (*sql.DB, error) {
	query := url.Values{"mode": {mode}, "vfs": {pinnedVFS}, "_defensive": {"1"}, "_pragma": append([]string{"trusted_schema(0)", "cell_size_check(1)"}, setup...)}
	dsn := (&url.URL{Scheme: "file", Path: f.filePath(), RawQuery: query.Encode()}).String()
	plain, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	connector := &tenantConnector{driver: plain.Driver(), dsn: dsn, file: f}
	return sql.OpenDB(connector), plain.Close()
}

// tenantConnector opens connections to a tenant's file and checks the file before and after.
type tenantConnector struct {
	driver driver.Driver
	dsn    string
	file   *tenantFile
}

// Driver implements [driver.Connector].
func (c *tenantConnector) Driver() driver.Driver { return c.driver }

// Connect implements [driver.Connector].
func (c *tenantConnector) Connect(context.Context) (driver.Conn, error) {
	if err := c.file.checkFolder(); err != nil { // reading connections are opened long after the file was checked first
		return nil, err
	}
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	if err := c.file.checkFolder(); err != nil { // finds a hard link that existed only at the moment of opening
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// checkSchema checks every object of the schema, if the schema has changed since the last check. It must be the first
// statement of a transaction, so that no other process can change the schema before the transaction's other statements.
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

// limitValueSize limits values on a connection to maxValueSize.
func limitValueSize(conn *sql.Conn) error {
	_, err := sqlite.Limit(conn, sqlite3.SQLITE_LIMIT_LENGTH, maxValueSize)
	return err
}

// readTenantSnapshot executes the statements of c, which only read, in one transaction of a tenant's file. Statements
// are not kept prepared: they are compiled after the size of values on the connection is limited and the schema is
// checked.
func (e *sqliteEngine) readTenantSnapshot(ctx context.Context, c *pendingBatch) error {
	ctx, cancel := e.withTimeout(ctx)
	defer cancel()
	conn, err := e.readDB.Conn(ctx)
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
	err = e.tenantFile.checkSchema(func(read func(Row) error, text string) error { return query(read, text) })
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
