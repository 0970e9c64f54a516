package app

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

// sessionSchema is where conversations and counts lie in an app's own PostgreSQL.
const sessionSchema = "stoa"

// ExternalDatabases are the databases that apps bring. Each is open once in this process, however many revisions of its app
// use it, and closed after the last. The zero value is ready.
type ExternalDatabases struct {
	mu        sync.Mutex
	databases map[externalDatabaseKey]*externalDatabase
}

// externalDatabaseKey tells one database of an app from another.
type externalDatabaseKey struct {
	tenant         db.ID
	privateNetwork bool // private addresses may be dialled
	external       db.ExternalDB
}

// acquireDatabase returns a database, and what gives it back.
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
		if last {
			return o.close()
		}
		return nil
	})
}

// Of opening a database that an app brings: the time it may take, and how long nobody tries again after it failed.
const (
	openTimeout    = 10 * time.Second
	openRetryDelay = time.Second
)

// externalDatabase is a database that an app brings. It is opened when first asked for, and its tables are made then.
type externalDatabase struct {
	external db.ExternalDB
	dialer   db.Dialer
	refs     int // under the lock of Databases

	sem      chan struct{} // held by whoever looks at what follows
	db       *db.DB
	failedAt time.Time
	err      error
	closed   bool
}

// ensureOpen returns the database, open and with its tables. Whoever waits for another's attempt does so as long as ctx.
func (o *externalDatabase) ensureOpen(ctx context.Context) (*db.DB, error) {
	select {
	case o.sem <- struct{}{}:
		defer func() { <-o.sem }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	switch {
	case o.db != nil:
		return o.db, nil
	case o.closed:
		return nil, db.ErrClosed
	case o.err != nil && time.Since(o.failedAt) < openRetryDelay:
		return nil, o.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	if o.db, o.err = openExternalDB(ctx, o.external, o.dialer); o.err != nil {
		o.failedAt = time.Now()
	}
	return o.db, o.err
}

// awaitOpen is ready for callers who wait no longer than ctx, whoever's attempt to open it is under way. The attempt goes on,
// and whoever closes the database waits for it.
func (o *externalDatabase) awaitOpen(ctx context.Context) (*db.DB, error) {
	type attempt struct {
		db  *db.DB
		err error
	}
	done := make(chan attempt, 1)
	go func() {
		d, err := o.ensureOpen(ctx)
		done <- attempt{d, err}
	}()
	select {
	case a := <-done:
		return a.db, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (o *externalDatabase) close() error {
	o.sem <- struct{}{}
	defer func() { <-o.sem }()
	o.closed = true
	if o.db == nil {
		return nil
	}
	d := o.db
	o.db = nil
	return d.Close()
}

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

// createVersionTable makes the table that says how far the others are.
const createVersionTable = `CREATE TABLE IF NOT EXISTS session_version (version BIGINT NOT NULL)`

// migrateTables brings the tables of what apps keep in d, conversations and counts, to the latest version, whoever else does so at the same time.
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
		for ; version < len(steps); version++ { // a later Stoa may have gone further
			if _, err := tx.Exec(ctx, steps[version]); err != nil {
				return fmt.Errorf("make the tables, version %d: %w", version+1, err)
			}
			if _, err := tx.Exec(ctx, `INSERT INTO session_version (version) VALUES ($1)`, version+1); err != nil {
				return err
			}
		}
		return nil
	})
}

// ensureSchema makes the schema in d if it is not there, for which the login needs a privilege that it needs for nothing
// else.
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

// newStoreFactory returns what makes the store of tasks in a database, with the app's conversations where its configuration
// wants them: there, in memory, or in a database of its own.
func (b *builder) newStoreFactory(h Dependencies) func(tasks *db.DB) *store.Store {
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
		if tasks == location {
			return st
		}
		return st.WithSessions(separateSessions)
	}
}

// acquireExternalDatabase returns a database that the configuration names, until the app is closed.
func (b *builder) acquireExternalDatabase(c *config.Database) *externalDatabase {
	g, dialer := newExternalDB(c), db.Dialer{Dial: b.egressClient.DialContext}
	if g.Driver == db.SQLite && !b.tenant.DefaultApp {
		g.Database, dialer.TenantFile = b.databaseFile(c)
	}
	configured, release := b.externalDatabases.acquireDatabase(externalDatabaseKey{b.tenant.ID, b.tenant.PrivateNetwork, g}, dialer)
	b.closers = append(b.closers, release)
	return configured
}

// checkDatabaseFiles looks at the files that a tenant names.
func (b *builder) checkDatabaseFiles() {
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

// databaseFile returns where a tenant's SQLite file lies, and what it is held to.
func (b *builder) databaseFile(c *config.Database) (path string, file *db.TenantFileRules) {
	guard, roots, written := b.folderGuard, b.tenant.Grants.Roots(grant.Filesystem), b.writableFolders()
	find := func() (grant.RootedPath, error) {
		at, err := guard.ResolvePath(roots, c.Database)
		for _, w := range written {
			if err == nil && at.IsIn(w.folder) {
				err = fmt.Errorf("the file lies in %s, where %s: a database is for this server alone to write; name a file in another folder", w.folder, w.reason)
			}
		}
		return at, err
	}
	at, err := find()
	if err != nil {
		return c.Database, &db.TenantFileRules{OpenFolder: func() (*os.File, error) { return nil, err }}
	}
	return at.FullPath(), &db.TenantFileRules{AllowObject: checkSchemaObject, OpenFolder: func() (*os.File, error) {
		now, err := find()
		if err == nil && now != at {
			err = errors.New("the folder that was granted has moved")
		}
		if err != nil {
			return nil, err
		}
		return guard.OpenDatabaseFolder(at)
	}}
}

// writableFolder is a folder in which something of a tenant's writes.
type writableFolder struct{ folder, reason string }

// writableFolders are those of this app.
func (b *builder) writableFolders() (folders []writableFolder) {
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
