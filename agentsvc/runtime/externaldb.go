package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/store"
	"stoa/migrations"
	"stoa/tenancy/db"
	"stoa/tenancy/grant"
)

// sessionSchema is the schema for sessions and counts in an app's own PostgreSQL.
const sessionSchema = "stoa"

// ExternalDatabases are the databases that apps configure. Each is opened once in a process, however many revisions of
// its app use it, and closed after the last of them. The zero value is ready.
type ExternalDatabases struct {
	// mu guards databases and the refs of its values.
	mu        sync.Mutex
	databases map[externalDatabaseKey]*externalDatabase
}

// externalDatabaseKey identifies a database of an app. It includes the password: a revision with a new one gets a
// connection of its own.
type externalDatabaseKey struct {
	tenant db.ID
	// privateNetwork says whether private addresses may be dialled.
	privateNetwork bool
	external       db.ExternalDB
}

// acquireDatabase returns a database and increments its count. The returned function decrements it, once, and closes
// the database after the last.
func (d *ExternalDatabases) acquireDatabase(b externalDatabaseKey, dialer db.Dialer) (*externalDatabase, func() error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.databases[b]
	if o == nil {
		if d.databases == nil {
			d.databases = map[externalDatabaseKey]*externalDatabase{}
		}
		o = &externalDatabase{external: b.external, dialer: dialer, sem: make(chan struct{}, 1)}
		d.databases[b] = o
	}
	o.refs++
	return o, sync.OnceValue(func() error {
		d.mu.Lock()
		o.refs--
		last := o.refs == 0
		if last {
			delete(d.databases, b)
		}
		d.mu.Unlock()
		// Outside of the lock: closing waits for an attempt to open.
		if last {
			return o.close()
		}
		return nil
	})
}

// Bounds of opening an external database.
const (
	// openTimeout bounds one attempt. After a failed one, requests get its error for openRetryDelay without another
	// attempt.
	openTimeout    = 10 * time.Second
	openRetryDelay = time.Second
)

// externalDatabase is a database that an app configures. It is opened, and its tables are created, at the first use.
type externalDatabase struct {
	external db.ExternalDB
	dialer   db.Dialer
	// refs counts the revisions that use it. Guarded by ExternalDatabases.mu.
	refs int

	// sem is a lock with one slot, which a caller can stop waiting for. It guards the fields below.
	sem      chan struct{}
	db       *db.DB
	failedAt time.Time
	// err is the error of the last attempt, failedAt its time.
	err    error
	closed bool
}

// ensureOpen returns the open database, with its tables. If another goroutine is opening it the call waits for that, no
// longer than ctx.
func (e *externalDatabase) ensureOpen(ctx context.Context) (*db.DB, error) {
	select {
	case e.sem <- struct{}{}:
		defer func() { <-e.sem }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	switch {
	case e.db != nil:
		return e.db, nil
	case e.closed:
		return nil, db.ErrClosed
	case e.err != nil && time.Since(e.failedAt) < openRetryDelay:
		return nil, e.err
	}
	// The attempt is independent of the caller's context: other callers wait for its result.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	if e.db, e.err = openExternalDB(ctx, e.external, e.dialer); e.err != nil {
		e.failedAt = time.Now()
	}
	return e.db, e.err
}

// awaitOpen is ensureOpen for callers that wait no longer than ctx even for their own attempt. The attempt continues in
// the background.
func (e *externalDatabase) awaitOpen(ctx context.Context) (*db.DB, error) {
	type attempt struct {
		db  *db.DB
		err error
	}
	done := make(chan attempt, 1)
	go func() {
		d, err := e.ensureOpen(ctx)
		done <- attempt{d, err}
	}()
	select {
	case a := <-done:
		return a.db, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// close closes the database and waits for an attempt that is in progress. Later calls of ensureOpen return
// [db.ErrClosed].
func (e *externalDatabase) close() error {
	e.sem <- struct{}{}
	defer func() { <-e.sem }()
	e.closed = true
	if e.db == nil {
		return nil
	}
	d := e.db
	e.db = nil
	return d.Close()
}

// openExternalDB opens a database and brings its tables to the current version.
func openExternalDB(ctx context.Context, g db.ExternalDB, dialer db.Dialer) (*db.DB, error) {
	d, err := db.OpenExternal(ctx, g, dialer)
	if err != nil {
		return nil, err
	}
	if err := migrateTables(ctx, d); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// createVersionTable creates the table with the schema version.
const createVersionTable = `CREATE TABLE IF NOT EXISTS session_version (version BIGINT NOT NULL)`

// migrateTables brings the tables for sessions and counts to the latest version. Several processes may do so at once:
// on PostgreSQL an advisory lock makes them sequential, on SQLite the write transaction.
func migrateTables(ctx context.Context, d *db.DB) error {
	steps, err := migrations.SessionMigrations()
	if err != nil {
		return err
	}
	if d.Engine() == db.Postgres {
		if err := ensureSchema(ctx, d); err != nil {
			return err
		}
	}
	return d.Platform().RunTx(ctx, func(tx *db.Tx) error {
		if d.Engine() == db.Postgres {
			if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(7239, 3)`); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, createVersionTable); err != nil {
			return err
		}
		version := 0
		if err := tx.Query(ctx, func(r db.Row) error { return r.Scan(&version) }, `SELECT COALESCE(MAX(version), 0) FROM session_version`); err != nil {
			return err
		}
		// A newer version of this program may have gone further; then there is nothing to do.
		for ; version < len(steps); version++ {
			if _, err := tx.Exec(ctx, steps[version]); err != nil {
				return fmt.Errorf("create the tables, version %d: %w", version+1, err)
			}
			if _, err := tx.Exec(ctx, `INSERT INTO session_version (version) VALUES ($1)`, version+1); err != nil {
				return err
			}
		}
		return nil
	})
}

// ensureSchema creates the schema if it does not exist. The check comes first because CREATE SCHEMA needs a privilege,
// even with IF NOT EXISTS, and an administrator may have created the schema for a login without it. The advisory lock
// is that of migrateTables.
func ensureSchema(ctx context.Context, d *db.DB) error {
	return d.Platform().RunTx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(7239, 3)`); err != nil {
			return err
		}
		exists := false
		err := tx.Query(ctx, func(r db.Row) error { return r.Scan(&exists) },
			`SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)`, sessionSchema)
		if err != nil || exists {
			return err
		}
		_, err = tx.Exec(ctx, `CREATE SCHEMA `+sessionSchema)
		return err
	})
}

// databaseBuilder selects the databases in which the app's data are.
type databaseBuilder struct {
	*hostAccess
	external *ExternalDatabases
}

// newStoreFactory returns a function that makes the app's store for a database of tasks. Sessions are stored where the
// configuration says: in the durable database, in memory, or in an external database.
func (b *databaseBuilder) newStoreFactory(h Dependencies) func(tasks *db.DB) *store.Store {
	location := h.DB
	if b.cfg.Storage.Sessions.Backend == inMemoryBackend && h.InMemory != nil {
		location = h.InMemory.DB
	}
	separateSessions := store.NewExternalSessions(b.tenant.ID, func(context.Context) (*db.DB, error) { return location, nil })
	if c := b.cfg.Databases[b.cfg.Storage.Sessions.Database]; c != nil {
		location, separateSessions = nil, store.NewExternalSessions(b.tenant.ID, b.acquireExternalDatabase(c).ensureOpen)
	}
	return func(tasks *db.DB) *store.Store {
		st := store.New(tasks, b.tenant.ID)
		// Sessions are in the database of the tasks: the store has them without a second connection.
		if tasks == location {
			return st
		}
		return st.WithSessions(separateSessions)
	}
}

// acquireExternalDatabase returns an external database of the configuration. It is released when the app is closed.
func (b *databaseBuilder) acquireExternalDatabase(c *config.Database) *externalDatabase {
	g, dialer := newExternalDB(c), db.Dialer{Dial: b.egressClient.DialContext}
	// A tenant's SQLite file is opened through its granted folder, and its schema is checked.
	if g.Driver == db.SQLite && !b.tenant.DefaultApp {
		g.Database, dialer.TenantFile = b.databaseFile(c)
	}
	configured, release := b.external.acquireDatabase(externalDatabaseKey{b.tenant.ID, b.tenant.PrivateNetwork, g}, dialer)
	b.closers = append(b.closers, release)
	return configured
}

// checkDatabaseFiles adds a problem for each SQLite file of a tenant that may not be used, so that the build reports it
// and not the first use.
func (b *databaseBuilder) checkDatabaseFiles() {
	for name, c := range b.cfg.Databases {
		if db.Engine(c.Driver) != db.SQLite || b.tenant.DefaultApp {
			continue
		}
		_, file := b.databaseFile(c)
		folder, err := file.OpenFolder()
		if err != nil {
			b.addProblem("databases."+name, agentsvc.NewInvalidError("database", "%v", err))
			continue
		}
		_ = folder.Close()
	}
}

// databaseFile returns the path of a tenant's SQLite file and the rules under which it is opened.
func (b *databaseBuilder) databaseFile(c *config.Database) (path string, file *db.TenantFileRules) {
	guard, roots, written := b.folderGuard, b.tenant.Grants.Roots(grant.Filesystem), b.writableFolders()
	// find runs now and again at each opening: grants hold for a path, and links in it may change.
	find := func() (grant.RootedPath, error) {
		at, err := guard.ResolvePath(roots, c.Database)
		for _, w := range written {
			if err == nil && at.IsIn(w.folder) {
				err = fmt.Errorf("the file is in %s, where %s: only this server may write to a database; name a file in another folder", w.folder, w.reason)
			}
		}
		return at, err
	}
	// A problem is reported by checkDatabaseFiles, and again by each attempt to open the file.
	at, err := find()
	if err != nil {
		return c.Database, &db.TenantFileRules{OpenFolder: func() (*os.File, error) { return nil, err }}
	}
	return at.FullPath(), &db.TenantFileRules{AllowObject: checkSchemaObject, OpenFolder: func() (*os.File, error) {
		now, err := find()
		if err == nil && now != at {
			err = errors.New("the granted folder was moved")
		}
		if err != nil {
			return nil, err
		}
		return guard.OpenDatabaseFolder(at)
	}}
}

// writableFolder is a folder in which something that a tenant controls can write. A database there could be replaced by
// a crafted file.
type writableFolder struct{ folder, reason string }

// writableFolders returns those of this app.
func (b *databaseBuilder) writableFolders() (folders []writableFolder) {
	for _, root := range b.tenant.Grants.Roots(grant.Command) {
		folders = append(folders, writableFolder{root, "programs of the app may write by the grant command"})
	}
	for name, t := range b.cfg.Tools {
		if t.Handler == "write_file" && t.WorkingDirectory != "" {
			folders = append(folders, writableFolder{t.WorkingDirectory, fmt.Sprintf("the tool %q writes files", name)})
		}
	}
	return folders
}

// newExternalDB converts a configuration. On PostgreSQL all tables are in sessionSchema, so that they do not mix with
// the app's own.
func newExternalDB(c *config.Database) db.ExternalDB {
	g := db.ExternalDB{
		Driver: db.Engine(c.Driver), Host: c.Host, Port: c.Port, Database: c.Database, Username: c.Username, Password: c.Password,
		SSLMode: c.SSLMode, MaxConns: c.MaxConns, MaxIdle: c.MaxIdle,
	}
	if g.Driver == db.Postgres {
		g.Schema = sessionSchema
	}
	return g
}
