package app

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
	"stoa/agentsvc/task"
	"stoa/billing"
	"stoa/migrations"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// InMemoryDBOptions bound a [Volatile]. What is zero takes the value named beside it.
type InMemoryDBOptions struct {
	MaxPages    int           // of 4 KiB, that all apps have together; 65536. Three quarters of them are for what apps may keep
	IdleTimeout time.Duration // how long an app that is not loaded is remembered; an hour
	Log         *slog.Logger
}

// InMemoryDB is the database in memory that the apps of a process share: what `backend: inmemory` asks for. It is
// SQLite as any other, with workers of its own, and ends with the process.
type InMemoryDB struct {
	DB      *db.DB
	Workers task.Executor // of its queue

	quota   *store.Quota
	durable *db.DB
	options InMemoryDBOptions
	mu      sync.Mutex
	apps    map[db.ID]*inMemoryApp
}

// inMemoryApp is an app that keeps something in memory, or did.
type inMemoryApp struct {
	loadedRevisions int       // revisions of it
	unloadedAt      time.Time // that none is
	retention       store.Retention
}

// cleanupInterval is the time between two looks at what need not be in memory.
const cleanupInterval = 10 * time.Second

// pageSize is that of SQLite's pages, in bytes.
const pageSize = 4096

// OpenInMemoryDB returns an empty database in memory, beside the lasting one.
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
	if err == nil {
		err = d.Platform().RunTx(ctx, func(tx *db.Tx) error {
			return tx.Query(ctx, func(db.Row) error { return nil }, fmt.Sprintf("PRAGMA max_page_count = %d", o.MaxPages))
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the database in memory: %w", err), d.Close())
	}
	v := &InMemoryDB{DB: d, durable: durable, options: o, apps: map[db.ID]*inMemoryApp{}}
	v.quota = store.NewQuota(d, store.QuotaOptions{
		Shared: int64(o.MaxPages/4*3) * pageSize, Log: o.Log,
		Advice: "an app may keep in memory as much as it leaves free to others. The oldest of what is finished is forgotten within seconds; storage.tasks.backend: sql and storage.sessions.backend: sql keep more",
	})
	d.SetQuota(v.quota)
	return v, nil
}

// registerRevision notes that a revision of an app is loaded. What it returns notes that it no longer is.
func (v *InMemoryDB) registerRevision(id db.ID, r store.Retention, l tenancy.Limits) (unregister func() error) {
	if err := v.saveLimits(id, l); err != nil {
		v.options.Log.Warn("the limits of an app do not reach its runs in memory", "tenant", id, "error", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	a := v.apps[id]
	if a == nil {
		a = &inMemoryApp{}
		v.apps[id] = a
	}
	a.loadedRevisions++
	a.retention = r
	return sync.OnceValue(func() error {
		v.mu.Lock()
		defer v.mu.Unlock()
		a.loadedRevisions--
		a.unloadedAt = time.Now()
		return nil
	})
}

// saveLimits puts an app's limits where the queue looks for them.
func (v *InMemoryDB) saveLimits(id db.ID, l tenancy.Limits) error {
	var b db.Batch
	b.Exec(nil, `INSERT INTO app (tenant, name, display_name, status, revision, inputs, generation, grants, plan, labels, data_key, master_key,
			created_at, updated_at, weight, max_concurrent_tasks, queue_depth)
		VALUES ($1, $1, '', 'active', 0, 0, 0, '[]', '', '{}', x'', '', 0, 0, $2, $3, $4)
		ON CONFLICT (tenant) DO UPDATE SET weight = excluded.weight, max_concurrent_tasks = excluded.max_concurrent_tasks, queue_depth = excluded.queue_depth`,
		string(id), l.Weight, l.MaxConcurrentTasks, l.QueueDepth)
	return v.DB.Platform().Do(context.Background(), &b)
}

// DeleteApp deletes what an app that is being deleted has in memory, and soon once more, for what was written late.
func (v *InMemoryDB) DeleteApp(ctx context.Context, id db.ID) error {
	v.mu.Lock()
	if a := v.apps[id]; a != nil {
		a.unloadedAt, a.retention = time.Time{}, store.Retention{}
	}
	v.mu.Unlock()
	err := store.New(v.DB, id).DeleteAll(ctx)
	v.quota.ForgetTenant(id)
	return err
}

// RunCleanup keeps the memory small until ctx ends: it deletes what apps keep no longer and what is left of apps that nobody
// has called for long; of an app whose share is nearly used up the oldest that is finished, and where room gets scarce
// that of who has the most first.
func (v *InMemoryDB) RunCleanup(ctx context.Context) error {
	tick := time.NewTicker(cleanupInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := v.cleanUpApps(ctx); err != nil && ctx.Err() == nil {
			v.options.Log.Warn("the database in memory could not be tidied", "error", err)
		}
	}
}

func (v *InMemoryDB) cleanUpApps(ctx context.Context) error {
	v.mu.Lock()
	ids := slices.Collect(maps.Keys(v.apps))
	v.mu.Unlock()
	var errs []error
	for _, id := range ids {
		errs = append(errs, v.cleanUpApp(ctx, id))
	}
	return errors.Join(append(errs, v.evictOldest(ctx))...)
}

// cleanUpApp deletes what an app keeps no longer, and all of one that is not loaded, is not called and waits for nothing.
func (v *InMemoryDB) cleanUpApp(ctx context.Context, id db.ID) error {
	v.mu.Lock()
	a := *v.apps[id]
	v.mu.Unlock()
	inMemoryStore := store.New(v.DB, id)
	if _, err := inMemoryStore.SweepExpired(ctx, a.retention); err != nil {
		return err
	}
	if err := v.evictOverShare(ctx, id, inMemoryStore); err != nil {
		return err
	}
	if a.loadedRevisions > 0 || time.Since(a.unloadedAt) < v.options.IdleTimeout {
		return nil
	}
	for _, st := range []*store.Store{inMemoryStore, store.New(v.durable, id)} { // a session may be here and its tasks there
		open, err := st.HasUnfinishedTasks(ctx)
		if err != nil {
			return err
		}
		if open {
			v.mu.Lock()
			v.apps[id].unloadedAt = time.Now() // look again in a while
			v.mu.Unlock()
			return nil
		}
	}
	v.mu.Lock() // who loads the app now waits, so that nothing new is deleted
	defer v.mu.Unlock()
	if v.apps[id].loadedRevisions > 0 {
		return nil
	}
	if err := inMemoryStore.DeleteAll(ctx); err != nil {
		return err
	}
	v.quota.ForgetTenant(id)
	delete(v.apps, id)
	return nil
}

// evictOverShare deletes the oldest that is finished of an app while its share is nearly used up.
func (v *InMemoryDB) evictOverShare(ctx context.Context, id db.ID, inMemoryStore *store.Store) error {
	for {
		if err := v.quota.MeasureTenant(ctx, id); err != nil || !v.quota.IsNearLimit(id) {
			return err
		}
		deleted, err := inMemoryStore.EvictOldest(ctx)
		if err != nil || deleted == 0 {
			return err
		}
		v.options.Log.Warn("an app's share of the memory is nearly used up: the oldest of what is finished was forgotten", "tenant", id, "count", deleted)
	}
}

// evictOldest makes room while more than three quarters are used and there is something finished.
func (v *InMemoryDB) evictOldest(ctx context.Context) error {
	for {
		if full, err := v.isNearlyFull(ctx); err != nil || !full {
			return err
		}
		largest, err := store.ListTenantsBySize(ctx, v.DB)
		if err != nil {
			return err
		}
		deleted := int64(0)
		for _, id := range largest {
			if deleted, err = store.New(v.DB, id).EvictOldest(ctx); err != nil {
				return err
			}
			if deleted > 0 {
				v.options.Log.Warn("the memory for apps is nearly full: the oldest of what is finished was forgotten", "tenant", id, "count", deleted)
				break
			}
		}
		if deleted == 0 {
			return nil
		}
	}
}

func (v *InMemoryDB) isNearlyFull(ctx context.Context) (bool, error) {
	var used int
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&used) }, `SELECT (SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count)`)
	err := v.DB.Platform().Do(ctx, &b)
	return used > v.options.MaxPages/4*3, err
}

// Close ends the database, and with it all that is in it.
func (v *InMemoryDB) Close() error { return v.DB.Close() }

// taskQueue is a database of tasks and its workers.
type taskQueue struct {
	db       *db.DB
	workers  task.Executor
	inMemory bool
}

// taskQueues lists those that an app's runs may come from: an earlier revision of it may have chosen the other one.
func (h Dependencies) taskQueues() []taskQueue {
	all := []taskQueue{{h.DB, h.Workers, false}}
	if h.InMemory != nil {
		all = append(all, taskQueue{h.InMemory.DB, h.InMemory.Workers, true})
	}
	return all
}

// taskDB returns the database of an app's tasks.
func (h Dependencies) taskDB(inMemory bool) *db.DB {
	if inMemory {
		return h.InMemory.DB
	}
	return h.DB
}

// registerInMemory reports whether the app wants its tasks kept in memory, having noted whether it wants anything there.
func (b *builder) registerInMemory(h Dependencies) bool {
	storage := b.cfg.Storage
	for key, backend := range map[string]string{"tasks": storage.Tasks.Backend, "sessions": storage.Sessions.Backend} {
		if backend == inMemoryBackend && h.InMemory == nil {
			b.addProblem("storage."+key+".backend", errors.New("this process keeps nothing in memory"))
			return false
		}
	}
	if storage.Tasks.Backend == inMemoryBackend || storage.Sessions.Backend == inMemoryBackend {
		b.closers = append(b.closers, h.InMemory.registerRevision(b.tenant.ID, b.effectiveRetention(h), b.tenant.Limits))
	}
	return storage.Tasks.Backend == inMemoryBackend
}

// inMemoryBackend is the backend of that name.
const inMemoryBackend = "inmemory"

// effectiveRetention is how long the app keeps what is finished: as its configuration says, else its plan.
func (b *builder) effectiveRetention(h Dependencies) store.Retention {
	var plan billing.Plan
	if h.Billing != nil {
		plan, _ = h.Billing.CachedPlan(b.tenant.Plan)
	}
	r := b.cfg.Storage.Retention
	return store.Retention{
		Tasks: cmp.Or(r.Tasks, plan.Retention.Tasks), Events: cmp.Or(r.Events, plan.Retention.Events), Sessions: cmp.Or(r.Sessions, plan.Retention.Sessions),
	}
}
