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

// VolatileOptions bound a [Volatile]. What is zero takes the value named beside it.
type VolatileOptions struct {
	Pages int           // of 4 KiB, that all apps have together; 65536. Three quarters of them are for what apps may keep
	Idle  time.Duration // how long an app that is not loaded is remembered; an hour
	Log   *slog.Logger
}

// Volatile is the database in memory that the apps of a process share: what `backend: inmemory` asks for. It is
// SQLite as any other, with workers of its own, and ends with the process.
type Volatile struct {
	DB      *db.DB
	Workers task.Handoff // of its queue

	quota   *store.Quota
	lasting *db.DB
	o       VolatileOptions
	mu      sync.Mutex
	apps    map[db.ID]*tenantInMemory
}

// tenantInMemory is an app that keeps something in memory, or did.
type tenantInMemory struct {
	loaded    int       // revisions of it
	since     time.Time // that none is
	retention store.Retention
}

// tidyEvery is the time between two looks at what need not be in memory.
const tidyEvery = 10 * time.Second

// pageSize is that of SQLite's pages, in bytes.
const pageSize = 4096

// OpenVolatile returns an empty database in memory, beside the lasting one.
func OpenVolatile(ctx context.Context, lasting *db.DB, o VolatileOptions) (*Volatile, error) {
	if o.Pages == 0 {
		o.Pages = 65536
	}
	if o.Idle == 0 {
		o.Idle = time.Hour
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	d, err := db.Open(ctx, "sqlite://:memory:", db.Options{Log: o.Log})
	if err != nil {
		return nil, fmt.Errorf("open the database in memory: %w", err)
	}
	err = d.Schema(ctx, "", func(s *sql.DB) error { return migrations.Up(ctx, string(d.Engine()), s) })
	if err == nil {
		err = d.Platform().Tx(ctx, func(tx *db.Tx) error {
			return tx.Query(ctx, func(db.Row) error { return nil }, fmt.Sprintf("PRAGMA max_page_count = %d", o.Pages))
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the database in memory: %w", err), d.Close())
	}
	v := &Volatile{DB: d, lasting: lasting, o: o, apps: map[db.ID]*tenantInMemory{}}
	v.quota = store.NewQuota(d, store.QuotaOptions{
		Shared: int64(o.Pages/4*3) * pageSize, Log: o.Log,
		Advice: "an app may keep in memory as much as it leaves free to others. The oldest of what is finished is forgotten within seconds; storage.tasks.backend: sql and storage.sessions.backend: sql keep more",
	})
	d.SetQuota(v.quota)
	return v, nil
}

// enter notes that a revision of an app is loaded. What it returns notes that it no longer is.
func (v *Volatile) enter(id db.ID, r store.Retention, l tenancy.Limits) (leave func() error) {
	if err := v.limit(id, l); err != nil {
		v.o.Log.Warn("the limits of an app do not reach its runs in memory", "tenant", id, "error", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	a := v.apps[id]
	if a == nil {
		a = &tenantInMemory{}
		v.apps[id] = a
	}
	a.loaded++
	a.retention = r
	return sync.OnceValue(func() error {
		v.mu.Lock()
		defer v.mu.Unlock()
		a.loaded--
		a.since = time.Now()
		return nil
	})
}

// limit puts an app's limits where the queue looks for them.
func (v *Volatile) limit(id db.ID, l tenancy.Limits) error {
	var b db.Batch
	b.Exec(nil, `INSERT INTO app (tenant, name, display_name, status, revision, inputs, generation, grants, plan, labels, data_key, master_key,
			created_at, updated_at, weight, max_concurrent_tasks, queue_depth)
		VALUES ($1, $1, '', 'active', 0, 0, 0, '[]', '', '{}', x'', '', 0, 0, $2, $3, $4)
		ON CONFLICT (tenant) DO UPDATE SET weight = excluded.weight, max_concurrent_tasks = excluded.max_concurrent_tasks, queue_depth = excluded.queue_depth`,
		string(id), l.Weight, l.MaxConcurrentTasks, l.QueueDepth)
	return v.DB.Platform().Do(context.Background(), &b)
}

// Forget deletes what an app that is being deleted has in memory, and soon once more, for what was written late.
func (v *Volatile) Forget(ctx context.Context, id db.ID) error {
	v.mu.Lock()
	if a := v.apps[id]; a != nil {
		a.since, a.retention = time.Time{}, store.Retention{}
	}
	v.mu.Unlock()
	err := store.New(v.DB, id).Clear(ctx)
	v.quota.Forget(id)
	return err
}

// Run keeps the memory small until ctx ends: it deletes what apps keep no longer and what is left of apps that nobody
// has called for long; of an app whose share is nearly used up the oldest that is finished, and where room gets scarce
// that of who has the most first.
func (v *Volatile) Run(ctx context.Context) error {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := v.tidy(ctx); err != nil && ctx.Err() == nil {
			v.o.Log.Warn("the database in memory could not be tidied", "error", err)
		}
	}
}

func (v *Volatile) tidy(ctx context.Context) error {
	v.mu.Lock()
	ids := slices.Collect(maps.Keys(v.apps))
	v.mu.Unlock()
	var errs []error
	for _, id := range ids {
		errs = append(errs, v.visit(ctx, id))
	}
	return errors.Join(append(errs, v.shed(ctx))...)
}

// visit deletes what an app keeps no longer, and all of one that is not loaded, is not called and waits for nothing.
func (v *Volatile) visit(ctx context.Context, id db.ID) error {
	v.mu.Lock()
	a := *v.apps[id]
	v.mu.Unlock()
	here := store.New(v.DB, id)
	if _, err := here.Sweep(ctx, a.retention); err != nil {
		return err
	}
	if err := v.makeRoom(ctx, id, here); err != nil {
		return err
	}
	if a.loaded > 0 || time.Since(a.since) < v.o.Idle {
		return nil
	}
	for _, st := range []*store.Store{here, store.New(v.lasting, id)} { // a session may be here and its tasks there
		open, err := st.Unfinished(ctx)
		if err != nil {
			return err
		}
		if open {
			v.mu.Lock()
			v.apps[id].since = time.Now() // look again in a while
			v.mu.Unlock()
			return nil
		}
	}
	v.mu.Lock() // who loads the app now waits, so that nothing new is deleted
	defer v.mu.Unlock()
	if v.apps[id].loaded > 0 {
		return nil
	}
	if err := here.Clear(ctx); err != nil {
		return err
	}
	v.quota.Forget(id)
	delete(v.apps, id)
	return nil
}

// makeRoom deletes the oldest that is finished of an app while its share is nearly used up.
func (v *Volatile) makeRoom(ctx context.Context, id db.ID, here *store.Store) error {
	for {
		if err := v.quota.Measure(ctx, id); err != nil || !v.quota.Scarce(id) {
			return err
		}
		gone, err := here.Shed(ctx)
		if err != nil || gone == 0 {
			return err
		}
		v.o.Log.Warn("an app's share of the memory is nearly used up: the oldest of what is finished was forgotten", "tenant", id, "count", gone)
	}
}

// shed makes room while more than three quarters are used and there is something finished.
func (v *Volatile) shed(ctx context.Context) error {
	for {
		if full, err := v.scarce(ctx); err != nil || !full {
			return err
		}
		heaviest, err := store.Heaviest(ctx, v.DB)
		if err != nil {
			return err
		}
		gone := int64(0)
		for _, id := range heaviest {
			if gone, err = store.New(v.DB, id).Shed(ctx); err != nil {
				return err
			}
			if gone > 0 {
				v.o.Log.Warn("the memory for apps is nearly full: the oldest of what is finished was forgotten", "tenant", id, "count", gone)
				break
			}
		}
		if gone == 0 {
			return nil
		}
	}
}

func (v *Volatile) scarce(ctx context.Context) (bool, error) {
	var used int
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&used) }, `SELECT (SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count)`)
	err := v.DB.Platform().Do(ctx, &b)
	return used > v.o.Pages/4*3, err
}

// Close ends the database, and with it all that is in it.
func (v *Volatile) Close() error { return v.DB.Close() }

// queueOf is a database of tasks and its workers.
type queueOf struct {
	db       *db.DB
	workers  task.Handoff
	volatile bool
}

// queues lists those that an app's runs may come from: an earlier revision of it may have chosen the other one.
func (h House) queues() []queueOf {
	all := []queueOf{{h.DB, h.Workers, false}}
	if h.Volatile != nil {
		all = append(all, queueOf{h.Volatile.DB, h.Volatile.Workers, true})
	}
	return all
}

// tasksIn returns the database of an app's tasks.
func (h House) tasksIn(volatile bool) *db.DB {
	if volatile {
		return h.Volatile.DB
	}
	return h.DB
}

// volatile reports whether the app wants its tasks kept in memory, having noted whether it wants anything there.
func (b *builder) volatile(h House) bool {
	storage := b.cfg.Storage
	for key, backend := range map[string]string{"tasks": storage.Tasks.Backend, "sessions": storage.Sessions.Backend} {
		if backend == inMemory && h.Volatile == nil {
			b.wrong("storage."+key+".backend", errors.New("this process keeps nothing in memory"))
			return false
		}
	}
	if storage.Tasks.Backend == inMemory || storage.Sessions.Backend == inMemory {
		b.closers = append(b.closers, h.Volatile.enter(b.tenant.ID, b.retention(h), b.tenant.Limits))
	}
	return storage.Tasks.Backend == inMemory
}

// inMemory is the backend of that name.
const inMemory = "inmemory"

// retention is how long the app keeps what is finished: as its configuration says, else its plan.
func (b *builder) retention(h House) store.Retention {
	var plan billing.Plan
	if h.Billing != nil {
		plan, _ = h.Billing.Plan(b.tenant.Plan)
	}
	r := b.cfg.Storage.Retention
	return store.Retention{
		Tasks: cmp.Or(r.Tasks, plan.Retention.Tasks), Events: cmp.Or(r.Events, plan.Retention.Events), Sessions: cmp.Or(r.Sessions, plan.Retention.Sessions),
	}
}
