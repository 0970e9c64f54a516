package runtime

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"stoa/agentsvc/store"
	"stoa/agentsvc/store/quota"
	"stoa/agentsvc/task"
	"stoa/billing/price"
	"stoa/migrations"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// InMemoryDBOptions are the options of an [InMemoryDB]. Zero fields have defaults.
type InMemoryDBOptions struct {
	// MaxPages bounds the database, in pages of 4 KiB; 65536 if zero. What apps store may take three quarters of them.
	MaxPages int
	// IdleTimeout is how long the data of an app stays that is not loaded; an hour if zero.
	IdleTimeout time.Duration
	Log         *slog.Logger
}

// InMemoryDB is the in-memory database that the apps of a process share, for the setting `backend: inmemory`. It is an
// SQLite database with all tables, and has workers of its own. Its contents end with the process.
type InMemoryDB struct {
	DB *db.DB

	// quota bounds what each app stores, so that one app cannot fill the database.
	quota *quota.Quota
	// durable is the process's other database, asked for unfinished tasks only.
	durable *db.DB
	options InMemoryDBOptions
	// mu guards apps and the fields of its values. cleanUpApp holds it while it deletes an app, so that no revision is
	// loaded meanwhile.
	mu   sync.Mutex
	apps map[db.ID]*inMemoryApp
}

// inMemoryApp is an app that has data in memory, or had.
type inMemoryApp struct {
	// loadedRevisions is the number of its revisions that are loaded.
	loadedRevisions int
	// unloadedAt is when the last one was unloaded.
	unloadedAt time.Time
	// retention is that of the revision loaded last.
	retention store.Retention
}

// cleanupInterval is the interval of RunCleanup.
const cleanupInterval = 10 * time.Second

// pageSize is the size of SQLite's pages, in bytes.
const pageSize = 4096

// OpenInMemoryDB returns an empty in-memory database with all migrations applied. durable is the process's other
// database.
func OpenInMemoryDB(ctx context.Context, durable *db.DB, o InMemoryDBOptions) (*InMemoryDB, error) {
	if o.MaxPages == 0 {
		o.MaxPages = 65536
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = time.Hour
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	d, err := db.Open(ctx, "sqlite://:memory:", db.Options{Log: o.Log})
	if err != nil {
		return nil, fmt.Errorf("open the database in memory: %w", err)
	}
	err = d.ChangeSchema(ctx, "", func(s *sql.DB) error { return migrations.Up(ctx, string(d.Engine()), s) })
	// The bound is SQLite's own: a write beyond it fails with SQLITE_FULL, whatever the quota has counted.
	if err == nil {
		err = d.Platform().RunTx(ctx, func(tx *db.Tx) error {
			return tx.Query(ctx, func(db.Row) error { return nil }, fmt.Sprintf("PRAGMA max_page_count = %d", o.MaxPages))
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the database in memory: %w", err), d.Close())
	}
	v := &InMemoryDB{DB: d, durable: durable, options: o, apps: map[db.ID]*inMemoryApp{}}
	v.quota = quota.New(d, quota.Options{
		Shared: int64(o.MaxPages/4*3) * pageSize, Log: o.Log,
		Advice: "an app may keep in memory as much as it leaves free to others. The oldest of what is finished is forgotten within seconds; storage.tasks.backend: sql and storage.sessions.backend: sql keep more",
	})
	d.SetQuota(v.quota)
	return v, nil
}

// registerRevision records that a revision of an app is loaded. The returned function records that it is unloaded;
// further calls do nothing.
func (i *InMemoryDB) registerRevision(id db.ID, r store.Retention, l tenancy.Limits) (unregister func() error) {
	// The error is only logged: without its limits in this database the app still works.
	if err := i.saveLimits(id, l); err != nil {
		i.options.Log.Warn("the limits of an app could not be applied to its runs in memory", "tenant", id, "error", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	a := i.apps[id]
	if a == nil {
		a = &inMemoryApp{}
		i.apps[id] = a
	}
	a.loadedRevisions++
	a.retention = r
	return sync.OnceValue(func() error {
		i.mu.Lock()
		defer i.mu.Unlock()
		a.loadedRevisions--
		a.unloadedAt = time.Now()
		return nil
	})
}

// saveLimits writes an app's limits to the in-memory table app, where the queue's claim statement reads them. The row
// has no other purpose.
func (i *InMemoryDB) saveLimits(id db.ID, l tenancy.Limits) error {
	var b db.Batch
	b.Exec(nil, `INSERT INTO app (tenant, name, display_name, status, revision, inputs, generation, grants, plan, labels, data_key, master_key,
			created_at, updated_at, weight, max_concurrent_tasks, queue_depth)
		VALUES ($1, $1, '', 'active', 0, 0, 0, '[]', '', '{}', x'', '', 0, 0, $2, $3, $4)
		ON CONFLICT (tenant) DO UPDATE SET weight = excluded.weight, max_concurrent_tasks = excluded.max_concurrent_tasks, queue_depth = excluded.queue_depth`,
		string(id), l.Weight, l.MaxConcurrentTasks, l.QueueDepth)
	return i.DB.Platform().Do(context.Background(), &b)
}

// DeleteApp deletes the data of an app that is being deleted. The next cleanup deletes it again: a run that still ends
// may write after this.
func (i *InMemoryDB) DeleteApp(ctx context.Context, id db.ID) error {
	i.mu.Lock()
	if a := i.apps[id]; a != nil {
		a.unloadedAt, a.retention = time.Time{}, store.Retention{}
	}
	i.mu.Unlock()
	err := store.New(i.DB, id).Sweeper.DeleteAll(ctx)
	i.quota.ForgetTenant(id)
	return err
}

// RunCleanup calls cleanUpApps every cleanupInterval until ctx ends. It deletes expired data and apps that have been
// idle for IdleTimeout. If an app has nearly used up its share it deletes that app's oldest finished data; if the whole
// database is nearly full, that of the largest app first.
func (i *InMemoryDB) RunCleanup(ctx context.Context) error {
	tick := time.NewTicker(cleanupInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := i.cleanUpApps(ctx); err != nil && ctx.Err() == nil {
			i.options.Log.Warn("the database in memory could not be cleaned up", "error", err)
		}
	}
}

// cleanUpApps cleans up each app, and then the database as a whole. An error of one app does not stop it.
func (i *InMemoryDB) cleanUpApps(ctx context.Context) error {
	i.mu.Lock()
	ids := slices.Collect(maps.Keys(i.apps))
	i.mu.Unlock()
	var errs []error
	for _, id := range ids {
		errs = append(errs, i.cleanUpApp(ctx, id))
	}
	return errors.Join(append(errs, i.evictOldest(ctx))...)
}

// cleanUpApp deletes expired data of an app, and all of it if the app is not loaded, has been idle for IdleTimeout and
// has no unfinished task.
func (i *InMemoryDB) cleanUpApp(ctx context.Context, id db.ID) error {
	i.mu.Lock()
	a := *i.apps[id]
	i.mu.Unlock()
	inMemoryStore := store.New(i.DB, id)
	if _, err := inMemoryStore.Sweeper.SweepExpired(ctx, a.retention); err != nil {
		return err
	}
	if err := i.evictOverShare(ctx, id, inMemoryStore); err != nil {
		return err
	}
	if a.loadedRevisions > 0 || time.Since(a.unloadedAt) < i.options.IdleTimeout {
		return nil
	}
	// A session may be in memory while its tasks are in the durable database.
	for _, st := range []*store.Store{inMemoryStore, store.New(i.durable, id)} {
		open, err := st.Tasks.HasUnfinished(ctx)
		if err != nil {
			return err
		}
		if open {
			i.mu.Lock()
			// Check again after another IdleTimeout.
			i.apps[id].unloadedAt = time.Now()
			i.mu.Unlock()
			return nil
		}
	}
	// From here registerRevision waits: nothing that a new revision writes is deleted.
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.apps[id].loadedRevisions > 0 {
		return nil
	}
	if err := inMemoryStore.Sweeper.DeleteAll(ctx); err != nil {
		return err
	}
	i.quota.ForgetTenant(id)
	delete(i.apps, id)
	return nil
}

// evictOverShare deletes the oldest finished data of an app while its share is nearly used up.
func (i *InMemoryDB) evictOverShare(ctx context.Context, id db.ID, inMemoryStore *store.Store) error {
	for {
		if err := i.quota.MeasureTenant(ctx, id); err != nil || !i.quota.IsNearLimit(id) {
			return err
		}
		deleted, err := inMemoryStore.Sweeper.EvictOldest(ctx)
		if err != nil || deleted == 0 {
			return err
		}
		i.options.Log.Warn("an app's share of the memory is nearly used up: its oldest finished tasks and conversations were deleted", "tenant", id, "count", deleted)
	}
}

// evictOldest deletes finished data, of the largest app that has any, while more than three quarters of the database
// are used.
func (i *InMemoryDB) evictOldest(ctx context.Context) error {
	for {
		if full, err := i.isNearlyFull(ctx); err != nil || !full {
			return err
		}
		largest, err := quota.ListTenantsBySize(ctx, i.DB)
		if err != nil {
			return err
		}
		deleted := int64(0)
		for _, id := range largest {
			if deleted, err = store.New(i.DB, id).Sweeper.EvictOldest(ctx); err != nil {
				return err
			}
			if deleted > 0 {
				i.options.Log.Warn("the memory for apps is nearly full: the oldest finished tasks and conversations were deleted", "tenant", id, "count", deleted)
				break
			}
		}
		if deleted == 0 {
			return nil
		}
	}
}

// isNearlyFull reports whether more than three quarters of the pages are used. Freed pages do not count: SQLite uses
// them again.
func (i *InMemoryDB) isNearlyFull(ctx context.Context) (bool, error) {
	var used int
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&used) }, `SELECT (SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count)`)
	err := i.DB.Platform().Do(ctx, &b)
	return used > i.options.MaxPages/4*3, err
}

// Close closes the database. Its contents are lost.
func (i *InMemoryDB) Close() error { return i.DB.Close() }

// taskQueue is a database with tasks and the workers of its queue.
type taskQueue struct {
	db       *db.DB
	workers  task.Executor
	inMemory bool
}

// taskQueues returns the databases from which runs of an app may come. An earlier revision of the app may have selected
// another one than this.
func (d Dependencies) taskQueues() []taskQueue {
	all := []taskQueue{{d.DB, d.Workers, false}}
	if d.InMemory != nil {
		all = append(all, taskQueue{d.InMemory.DB, d.InMemoryWorkers, true})
	}
	return all
}

// taskDB returns the database in which an app's new tasks are stored.
func (d Dependencies) taskDB(inMemory bool) *db.DB {
	if inMemory {
		return d.InMemory.DB
	}
	return d.DB
}

// registerInMemory reports whether the app stores its tasks in memory. If it stores anything there it registers the
// revision.
func (b *build) registerInMemory(h Dependencies) bool {
	storage := b.cfg.Storage
	for key, backend := range map[string]string{"tasks": storage.Tasks.Backend, "sessions": storage.Sessions.Backend} {
		if backend == inMemoryBackend && h.InMemory == nil {
			if h.DB != nil { // else the configuration is only checked
				b.addProblem("storage."+key+".backend", errors.New("this process has no database in memory"))
			}
			return false
		}
	}
	if storage.Tasks.Backend == inMemoryBackend || storage.Sessions.Backend == inMemoryBackend {
		b.closers = append(b.closers, h.InMemory.registerRevision(b.tenant.ID, b.effectiveRetention(h), b.tenant.Limits))
	}
	return storage.Tasks.Backend == inMemoryBackend
}

// inMemoryBackend is the value of storage.*.backend for the in-memory database.
const inMemoryBackend = "inmemory"

// effectiveRetention returns how long the app keeps finished data: by its configuration, else by its plan.
func (b *build) effectiveRetention(h Dependencies) store.Retention {
	var plan price.Plan
	if h.Billing != nil {
		plan, _ = h.Billing.Prices.CachedPlan(b.tenant.Plan)
	}
	r := b.cfg.Storage.Retention
	return store.Retention{
		Tasks: cmp.Or(r.Tasks, plan.Retention.Tasks), Events: cmp.Or(r.Events, plan.Retention.Events), Sessions: cmp.Or(r.Sessions, plan.Retention.Sessions),
	}
}
