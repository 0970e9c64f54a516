package db

import (
	"cmp"
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
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// Bounds of a [ReadOnlyDB].
const (
	// maxReadOnlyConns bounds the connections; documents are read one page at a time.
	maxReadOnlyConns = 2
	// readOnlyIdleTime is how long a connection stays open unused.
	readOnlyIdleTime = time.Minute
	// readTimeout bounds one call of [ReadOnlyDB.Read].
	readTimeout = 3 * externalStatementTimeout
)

// ReadOnlyDB is an external database that documents are read from. It is not one of Stoa's: it may have any tables, and
// nothing is created or changed in it.
type ReadOnlyDB struct {
	engine Engine
	pool   *sql.DB
	// tenantFile is nil for a server and for an operator's file.
	tenantFile *tenantFile
}

// OpenReadOnly returns the external database g for reading. It connects when there is something to do, only through
// dialer, and reads nothing from the process's environment. A SQLite file must exist. Of [Dialer.TenantFile] only
// OpenFolder is used: the file may hold any table, index, view and trigger, but no virtual table.
func OpenReadOnly(g ExternalDB, dialer Dialer) (*ReadOnlyDB, error) {
	d := &ReadOnlyDB{engine: g.Driver}
	var err error
	switch g.Driver {
	case SQLite:
		err = d.openFile(g.Database, dialer.TenantFile)
	case Postgres:
		err = d.openPostgres(g, dialer)
	case MySQL:
		d.pool, err = openMySQL(g, dialer)
	default:
		err = fmt.Errorf("documents cannot be read from a database of the kind %q", g.Driver)
	}
	if err != nil {
		return nil, err
	}
	d.pool.SetMaxOpenConns(min(max(1, g.MaxConns), maxReadOnlyConns))
	d.pool.SetMaxIdleConns(min(g.MaxIdle, 1))
	d.pool.SetConnMaxIdleTime(readOnlyIdleTime)
	return d, nil
}

// openPostgres prepares the pool of a PostgreSQL database. Statements are described before they are executed and not
// kept prepared, so that a pooler between the two does no harm.
func (d *ReadOnlyDB) openPostgres(g ExternalDB, dialer Dialer) error {
	cfg, err := newExternalPoolConfig(g, dialer)
	if err != nil {
		return err
	}
	cfg.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec
	d.pool = sql.OpenDB(&guardedConnector{
		dial: dialer.Dial, driver: stdlib.GetDefaultDriver(),
		newConnector: func(_ context.Context, dial dialFunc) (driver.Connector, error) {
			c := cfg.ConnConfig.Copy()
			c.DialFunc = pgconn.DialFunc(dial)
			return stdlib.GetConnector(*c), nil
		},
	})
	return nil
}

// openFile prepares the pool of a SQLite file. An operator's file may not be one that a Stoa platform keeps its data in.
func (d *ReadOnlyDB) openFile(path string, tenant *TenantFileRules) (err error) {
	if tenant != nil {
		if err := registerPinnedVFS(); err != nil {
			return err
		}
		if d.tenantFile, err = openTenantFile(path, &TenantFileRules{OpenFolder: tenant.OpenFolder, AllowObject: allowReadObject}); err != nil {
			return err
		}
		if d.pool, err = d.tenantFile.openConnections("ro", waitPragma, readPragma); err != nil {
			return errors.Join(err, d.tenantFile.folder.releaseFolder())
		}
		return nil
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if err := checkUnlocked(abs, path); err != nil {
		return err
	}
	if _, err := os.Stat(abs); err != nil {
		return &fileError{errors.New("it does not exist or may not be read")}
	}
	d.pool, err = sql.Open("sqlite", dataSource((&url.URL{Scheme: "file", Path: abs}).String(), waitPragma, readPragma, "trusted_schema(0)")+"&mode=ro")
	return err
}

// allowReadObject allows everything that is read by SQLite itself. A virtual table is read by a module, which trusts what
// the file says about it.
func allowReadObject(o SchemaObject) error {
	if words := strings.Fields(o.SQL); len(words) > 1 && strings.EqualFold(words[1], "VIRTUAL") {
		return fmt.Errorf("it holds the virtual table %.80q, which is not read: copy its rows to a table", o.Name)
	}
	return nil
}

// checkUnlocked returns an error if a platform has the SQLite file at path open, see lockFile. It creates no file.
func checkUnlocked(path, name string) error {
	f, err := os.OpenFile(path+".lock", os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &fileError{errors.New("its lock cannot be read")}
	}
	defer func() { _ = f.Close() }()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
		return &fileError{fmt.Errorf("%s holds the data of a server", name)}
	}
	return nil
}

// Engine returns the kind of the database.
func (d *ReadOnlyDB) Engine() Engine { return d.engine }

// Close closes the connections.
func (d *ReadOnlyDB) Close() error {
	err := d.pool.Close()
	if d.tenantFile != nil {
		err = errors.Join(err, d.tenantFile.folder.releaseFolder())
	}
	return err
}

// Read runs f in a transaction that sees one state of the database and can change nothing. Each statement ends within
// externalStatementTimeout, the call within readTimeout.
func (d *ReadOnlyDB) Read(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	switch d.engine {
	case SQLite:
		err = limitValueSize(conn)
	case MySQL:
		err = limitMySQLStatements(ctx, conn)
	}
	if err != nil {
		return err
	}
	options := &sql.TxOptions{ReadOnly: true}
	if d.engine == Postgres {
		options.Isolation = sql.LevelRepeatableRead // the default of the others
	}
	tx, err := conn.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // there is nothing to commit
	if d.tenantFile != nil {
		err := d.tenantFile.checkSchema(func(read func(Row) error, text string) error {
			rows, err := tx.QueryContext(ctx, text)
			if err != nil {
				return err
			}
			return cmp.Or(readSQLiteRows(rows, read))
		})
		if err != nil {
			return err
		}
	}
	return f(ctx, tx)
}
