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

// Databases are the databases that apps bring. Each is open once in this process, however many revisions of its app
// use it, and closed after the last. The zero value is ready.
type Databases struct {
	mu   sync.Mutex
	open map[borrowed]*ownDatabase
}

// borrowed tells one database of an app from another.
type borrowed struct {
	tenant db.ID
	inside bool // private addresses may be dialled
	guest  db.Guest
}

// borrow returns a database, and what gives it back.
func (d *Databases) borrow(b borrowed, way db.Way) (*ownDatabase, func() error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.open[b]
	if o == nil {
		if d.open == nil {
			d.open = map[borrowed]*ownDatabase{}
		}
		o = &ownDatabase{guest: b.guest, way: way, turn: make(chan struct{}, 1)}
		d.open[b] = o
	}
	o.users++
	return o, sync.OnceValue(func() error {
		d.mu.Lock()
		o.users--
		last := o.users == 0
		if last {
			delete(d.open, b)
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
	openTimeout = 10 * time.Second
	openPause   = time.Second
)

// ownDatabase is a database that an app brings. It is opened when first asked for, and its tables are made then.
type ownDatabase struct {
	guest db.Guest
	way   db.Way
	users int // under the lock of Databases

	turn   chan struct{} // held by whoever looks at what follows
	db     *db.DB
	failed time.Time
	err    error
	closed bool
}

// ready returns the database, open and with its tables. Whoever waits for another's attempt does so as long as ctx.
func (o *ownDatabase) ready(ctx context.Context) (*db.DB, error) {
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	switch {
	case o.db != nil:
		return o.db, nil
	case o.closed:
		return nil, db.ErrClosed
	case o.err != nil && time.Since(o.failed) < openPause:
		return nil, o.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	if o.db, o.err = openOwn(ctx, o.guest, o.way); o.err != nil {
		o.failed = time.Now()
	}
	return o.db, o.err
}

// soon is ready for callers who wait no longer than ctx, whoever's attempt to open it is under way. The attempt goes on,
// and whoever closes the database waits for it.
func (o *ownDatabase) soon(ctx context.Context) (*db.DB, error) {
	type attempt struct {
		db  *db.DB
		err error
	}
	done := make(chan attempt, 1)
	go func() {
		d, err := o.ready(ctx)
		done <- attempt{d, err}
	}()
	select {
	case a := <-done:
		return a.db, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (o *ownDatabase) close() error {
	o.turn <- struct{}{}
	defer func() { <-o.turn }()
	o.closed = true
	if o.db == nil {
		return nil
	}
	d := o.db
	o.db = nil
	return d.Close()
}

func openOwn(ctx context.Context, g db.Guest, way db.Way) (*db.DB, error) {
	d, err := db.OpenGuest(ctx, g, way)
	if err != nil {
		return nil, err
	}
	if err := makeTables(ctx, d); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// createVersion makes the table that says how far the others are.
const createVersion = `CREATE TABLE IF NOT EXISTS session_version (version BIGINT NOT NULL)`

// makeTables brings the tables of what apps keep in d, conversations and counts, to the latest version, whoever else does so at the same time.
func makeTables(ctx context.Context, d *db.DB) error {
	steps, err := migrations.Sessions()
	if err != nil {
		return err
	}
	if d.Engine() == db.Postgres {
		if err := makeSchema(ctx, d); err != nil {
			return err
		}
	}
	return d.Platform().Tx(ctx, func(tx *db.Tx) error {
		if d.Engine() == db.Postgres {
			if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(7239, 3)`); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, createVersion); err != nil {
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

// makeSchema makes the schema in d if it is not there, for which the login needs a privilege that it needs for nothing
// else.
func makeSchema(ctx context.Context, d *db.DB) error {
	return d.Platform().Tx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(7239, 3)`); err != nil {
			return err
		}
		there := false
		err := tx.Query(ctx, func(r db.Row) error { return r.Scan(&there) },
			`SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)`, sessionSchema)
		if err != nil || there {
			return err
		}
		_, err = tx.Exec(ctx, `CREATE SCHEMA `+sessionSchema)
		return err
	})
}

// sessions returns what makes the store of tasks in a database, with the app's conversations where its configuration
// wants them: there, in memory, or in a database of its own.
func (b *builder) sessions(h House) func(tasks *db.DB) *store.Store {
	place := h.DB
	if b.cfg.Storage.Sessions.Backend == inMemory && h.Volatile != nil {
		place = h.Volatile.DB
	}
	apart := store.SessionsApart(b.tenant.ID, func(context.Context) (*db.DB, error) { return place, nil })
	if c := b.cfg.Databases[b.cfg.Storage.Sessions.Database]; c != nil {
		place, apart = nil, store.SessionsApart(b.tenant.ID, b.borrow(c).ready)
	}
	return func(tasks *db.DB) *store.Store {
		st := store.New(tasks, b.tenant.ID)
		if tasks == place {
			return st
		}
		return st.With(apart)
	}
}

// borrow returns a database that the configuration names, until the app is closed.
func (b *builder) borrow(c *config.Database) *ownDatabase {
	g, way := guest(c), db.Way{Dial: b.out.DialContext}
	if g.Driver == db.SQLite && !b.tenant.Own {
		g.Database, way.Tenant = b.databaseFile(c)
	}
	own, giveBack := b.databases.borrow(borrowed{b.tenant.ID, b.tenant.Inside, g}, way)
	b.closers = append(b.closers, giveBack)
	return own
}

// allDatabases looks at the files that a tenant names.
func (b *builder) allDatabases() {
	for name, c := range b.cfg.Databases {
		if db.Engine(c.Driver) != db.SQLite || b.tenant.Own {
			continue
		}
		_, file := b.databaseFile(c)
		folder, err := file.Folder()
		if err != nil {
			b.wrong("databases."+name, agentsvc.Invalid("database", "%v", err))
			continue
		}
		_ = folder.Close()
	}
}

// databaseFile returns where a tenant's SQLite file lies, and what it is held to.
func (b *builder) databaseFile(c *config.Database) (path string, file *db.TenantFile) {
	guard, roots, written := b.folders, b.tenant.Grants.Roots(grant.Filesystem), b.writtenFolders()
	find := func() (grant.Place, error) {
		at, err := guard.Find(roots, c.Database)
		for _, w := range written {
			if err == nil && at.LiesIn(w.folder) {
				err = fmt.Errorf("the file lies in %s, where %s: a database is for this server alone to write; name a file in another folder", w.folder, w.by)
			}
		}
		return at, err
	}
	at, err := find()
	if err != nil {
		return c.Database, &db.TenantFile{Folder: func() (*os.File, error) { return nil, err }}
	}
	return at.Name(), &db.TenantFile{Allow: allowObject, Folder: func() (*os.File, error) {
		now, err := find()
		if err == nil && now != at {
			err = errors.New("the folder that was granted has moved")
		}
		if err != nil {
			return nil, err
		}
		return guard.DatabaseFolder(at)
	}}
}

// writtenFolder is a folder in which something of a tenant's writes.
type writtenFolder struct{ folder, by string }

// writtenFolders are those of this app.
func (b *builder) writtenFolders() (folders []writtenFolder) {
	for _, root := range b.tenant.Grants.Roots(grant.Command) {
		folders = append(folders, writtenFolder{root, "programs of the app may write by the grant command"})
	}
	for name, t := range b.cfg.Tools {
		if t.Handler == "write_file" && t.WorkingDirectory != "" {
			folders = append(folders, writtenFolder{t.WorkingDirectory, fmt.Sprintf("the tool %q writes files", name)})
		}
	}
	return folders
}

func guest(c *config.Database) db.Guest {
	g := db.Guest{
		Driver: db.Engine(c.Driver), Host: c.Host, Port: c.Port, Database: c.Database, Username: c.Username, Password: c.Password,
		SSLMode: c.SSLMode, MaxConns: c.MaxConns, MaxIdle: c.MaxIdle,
	}
	if g.Driver == db.Postgres {
		g.Schema = sessionSchema
	}
	return g
}
