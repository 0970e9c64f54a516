package change

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"stoa/tenancy/db"
	"stoa/tenancy/signal"
)

// The topics of changes, on the signal bus and in table billing_change.
const (
	// Price: the price book has changed. It has no key.
	Price = "price"
	// Plan: the plans have changed. It has no key.
	Plan = "plan"
	// Budget: the budgets of an app have changed. The key is the app's id, "" for those of the platform.
	Budget = "budget"
)

// ReloadInterval is how long a process may use a cached price, plan or budget if neither a signal nor billing_change
// announced the change: [Feed.Run] reads all of them again that often.
const ReloadInterval = time.Minute

// How this process learns of changes that no signal reported: signals may be lost, and without Redis there are none
// between processes. So each change is also recorded in table billing_change, which every process reads each
// pollInterval by the index on generation. pollTimeout bounds one such read.
const (
	pollInterval = 500 * time.Millisecond
	pollTimeout  = 5 * time.Second
)

// reloadTimeout bounds how long the response to a change waits for the caches to be read again.
const reloadTimeout = 5 * time.Second

// Feed keeps the caches of prices, plans and budgets of this process current. It is safe for concurrent use.
type Feed struct {
	db  *db.DB
	bus *signal.Bus
	log *slog.Logger

	// reloads has by topic the function that reads the cache again. [Feed.OnChange] sets them before Run begins.
	reloads map[string]func(ctx context.Context, key string) error

	// readMu is held while changes are read and the caches with them, so that the cursor never passes a change that is
	// not read yet.
	readMu sync.Mutex
	// lastGeneration is the highest generation of billing_change that was read. Guarded by readMu.
	lastGeneration int64

	// stale is the set of [signal.Signal] whose cache is to be read again. markStale adds, the goroutine of Run removes.
	stale sync.Map
	// wake has one buffered element: it is full while stale may hold something.
	wake chan struct{}
}

// Open returns the feed of database d, which begins with the changes that are recorded from now on. Open it before
// the caches are filled: a change in between is then read twice rather than missed. bus may be nil.
func Open(ctx context.Context, d *db.DB, bus *signal.Bus, log *slog.Logger) (*Feed, error) {
	f := &Feed{db: d, bus: bus, log: log, reloads: map[string]func(context.Context, string) error{}, wake: make(chan struct{}, 1)}
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&f.lastGeneration) }, `SELECT generation FROM billing_change WHERE topic = '' AND key = ''`)
	if err := d.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read the last change: %w", err)
	}
	return f, nil
}

// OnChange sets the function that reads the cache of a topic again. A change of a topic with an empty key concerns the
// whole cache. It must be called before Run.
func (f *Feed) OnChange(topic string, reload func(ctx context.Context, key string) error) {
	f.reloads[topic] = reload
}

// Record records in tx that the object of topic and key has changed. It must be the last statement of tx that
// locks rows.
//
// The row with the empty topic is the counter of generations. Its update locks it until tx ends, so generations commit
// in their order: a reader that has seen one has seen all lower ones.
func Record(ctx context.Context, tx *db.Tx, topic, key string) error {
	var generation int64
	err := tx.Query(ctx, func(r db.Row) error { return r.Scan(&generation) }, `INSERT INTO billing_change (topic, key, generation) VALUES ('', '', 1)
		ON CONFLICT (topic, key) DO UPDATE SET generation = billing_change.generation + 1 RETURNING generation`)
	if err != nil {
		return fmt.Errorf("record a change of %s: %w", topic, err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO billing_change (topic, key, generation) VALUES ($1, $2, $3)
		ON CONFLICT (topic, key) DO UPDATE SET generation = excluded.generation`, topic, key, generation)
	if err != nil {
		return fmt.Errorf("record a change of %s: %w", topic, err)
	}
	return nil
}

// Forget deletes in tx the record of changes of topic and key, whose object is deleted for good.
func Forget(ctx context.Context, tx *db.Tx, topic, key string) error {
	_, err := tx.Exec(ctx, `DELETE FROM billing_change WHERE topic = $1 AND key = $2`, topic, key)
	return err
}

// Publish ends a committed change: it calls reload, which reads the change into this process's cache, and signals
// the other processes. It does so even if the caller's context has ended, and it returns no error: the change stands,
// and billing_change makes every process read it again within pollInterval.
func (f *Feed) Publish(ctx context.Context, topic, key string, reload func(context.Context) error) {
	f.runLogged(context.WithoutCancel(ctx), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
		defer cancel()
		return reload(ctx)
	})
	f.bus.Publish(topic, key)
}

// Run reads caches again as changes are announced, until ctx ends. It returns ctx.Err() after its goroutine has ended.
func (f *Feed) Run(ctx context.Context) error {
	for topic := range f.reloads {
		defer f.bus.WatchTopic(topic, func(key string) { f.markStale(signal.Signal{Topic: topic, Key: key}) })()
	}
	var poll sync.WaitGroup
	defer poll.Wait()
	poll.Go(func() { f.pollChanges(ctx) })
	// This goroutine alone reads the caches again when a signal arrives or ReloadInterval has passed.
	again := time.NewTicker(ReloadInterval)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.wake:
		case <-again.C:
			for topic := range f.reloads {
				f.markStale(signal.Signal{Topic: topic})
			}
		}
		f.stale.Range(func(key, _ any) bool {
			f.stale.Delete(key)
			f.runLogged(ctx, func(ctx context.Context) error { return f.reload(ctx, key.(signal.Signal)) })
			return true
		})
	}
}

// markStale makes the goroutine of Run read again what the signal names. It does not block: it is called from the
// signal bus.
func (f *Feed) markStale(at signal.Signal) {
	f.stale.Store(at, true)
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// reload reads again what the signal names. A topic without a cache, which a newer version may record, is skipped.
func (f *Feed) reload(ctx context.Context, at signal.Signal) error {
	if reload := f.reloads[at.Topic]; reload != nil {
		return reload(ctx, at.Key)
	}
	return nil
}

// runLogged calls g and logs its error, unless ctx has ended. The caches keep what they had.
func (f *Feed) runLogged(ctx context.Context, g func(context.Context) error) {
	if err := g(ctx); err != nil && ctx.Err() == nil {
		f.log.WarnContext(ctx, "billing continues with the last known state", "error", err)
	}
}

// ReadChanges reads again everything that any process has changed since the last call. After an error the cursor stays,
// and the next call reads the same changes again.
func (f *Feed) ReadChanges(ctx context.Context) error {
	f.readMu.Lock()
	defer f.readMu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	var changed []signal.Signal
	last := f.lastGeneration
	var b db.Batch
	b.Query(func(r db.Row) error {
		var at signal.Signal
		var generation int64
		err := r.Scan(&at.Topic, &at.Key, &generation)
		// The counter's row, whose topic is empty, only advances the cursor.
		if last = max(last, generation); at.Topic != "" {
			changed = append(changed, at)
		}
		return err
	}, `SELECT topic, key, generation FROM billing_change WHERE generation > $1`, f.lastGeneration)
	if err := f.db.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("look for changed prices, plans and budgets: %w", err)
	}
	for _, at := range changed {
		if err := f.reload(ctx, at); err != nil {
			return err // the cursor stays: the next call reads it again
		}
	}
	f.lastGeneration = last
	return nil
}

// pollChanges calls ReadChanges every pollInterval until ctx ends. It logs the first failure of an outage, and its end.
func (f *Feed) pollChanges(ctx context.Context) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	healthy := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := f.ReadChanges(ctx)
		if ctx.Err() != nil || (err == nil) == healthy {
			continue
		}
		if healthy = err == nil; healthy {
			f.log.InfoContext(ctx, "changes of prices, plans and budgets are read again")
		} else {
			f.log.WarnContext(ctx, "prices, plans and budgets are used as last known", "error", err)
		}
	}
}
