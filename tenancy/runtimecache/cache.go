// Package runtimecache keeps one built value per app, such as the runtime of the app's configuration, and replaces it
// when the app changes in any process.
package runtimecache

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// Options configure a [Cache]. A zero field takes the default named with it.
type Options struct {
	// MaxEntries is how many entries are kept; 1024. Entries in use are never evicted, so there may be more.
	MaxEntries int
	// IdleTimeout is how long an unused value is kept; 15 minutes.
	IdleTimeout time.Duration
	// BuildTimeout bounds reading and building one app; 30 seconds.
	BuildTimeout time.Duration
	// FailureTTL is how long callers get the error of a failed build before the build is tried again; 1 second.
	FailureTTL time.Duration
	// MaxChangeWait is how long a caller waits for the build of a changed app before it gets the old value; 1 second.
	// The wait lets a caller that made the change itself see it.
	MaxChangeWait time.Duration
	// CheckInterval is the time between two comparisons of generations with the database; 1 second. It bounds the delay
	// of a change whose signal was lost.
	CheckInterval time.Duration

	// OnChange is called with an app's new record when a loaded app changed, for instance its status, which is
	// [tenancy.Deleting] also after the app is gone. It may be called more than once for a change. The record is in
	// place before the call: after it, no call of Acquire returns a value of an app that was reported suspended or
	// deleted.
	OnChange func(tenancy.App)
	// OnBuild is called after each build with its duration, including reading the app, and with the error of an app that
	// cannot be read. It may be nil.
	OnBuild func(took time.Duration, err error)
	// OnEvict is called when an entry with a value is removed because it was idle or the cache was full. It may be nil.
	OnEvict func()
	Log     *slog.Logger
}

func (o *Options) setDefaults() {
	o.MaxEntries = cmp.Or(o.MaxEntries, 1024)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 15*time.Minute)
	o.BuildTimeout = cmp.Or(o.BuildTimeout, 30*time.Second)
	o.FailureTTL = cmp.Or(o.FailureTTL, time.Second)
	o.MaxChangeWait = cmp.Or(o.MaxChangeWait, time.Second)
	o.CheckInterval = cmp.Or(o.CheckInterval, time.Second)
	if o.OnChange == nil {
		o.OnChange = func(tenancy.App) {}
	}
	if o.OnBuild == nil {
		o.OnBuild = func(time.Duration, error) {}
	}
	if o.OnEvict == nil {
		o.OnEvict = func() {}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
}

// Errors of [Cache.Acquire], besides those of package tenancy.
var (
	// ErrUnavailable reports that the app cannot be built or its record cannot be read at present. The wrapped cause is
	// for the log and must not be shown to callers.
	ErrUnavailable = agentsvc.NewError(agentsvc.CodeUnavailable, "the app is unavailable")
	// ErrClosed reports that the process is shutting down.
	ErrClosed = agentsvc.NewError(agentsvc.CodeUnavailable, "shutting down")
)

// Cache keeps one built value per app. A value is built when it is first asked for, once for all concurrent
// callers; replaced as a whole when the app changes; and closed after its last user has released it. A build that hangs
// or fails affects no other app, and the previous value stays in use until a build succeeds. It is safe for concurrent
// use.
//
// An entry is loaded by at most one goroutine at a time ([Cache.runLoad]). Three events start a load: a caller
// that finds the entry missing or outdated, a signal on [tenancy.TopicApp], and the comparison of generations in
// [Cache.Run].
type Cache[T io.Closer] struct {
	// apps, build, options, ctx, cancel and stopWatch are set by New and read-only afterwards.
	apps    *tenancy.Service
	build   func(ctx context.Context, s *tenancy.Snapshot) (T, error)
	options Options
	// ctx is the parent of the contexts of all builds; Close cancels it.
	ctx       context.Context
	cancel    context.CancelFunc
	stopWatch func()
	// checkNow (capacity 1) makes Run compare generations at once.
	checkNow chan struct{}
	entries  entryMap[T]

	// closeMu guards closed. startGoroutine holds it for reading while it adds to work, so that no goroutine starts
	// after Close has begun to wait.
	closeMu sync.RWMutex
	closed  bool
	// work counts the goroutines that load and close values.
	work sync.WaitGroup
}

// New returns a cache over the apps of s whose values build makes. A build must observe its context: one
// that does not return in time is abandoned, and its value is closed when it arrives. Call Run for background
// refreshing and Close when done.
func New[T io.Closer](s *tenancy.Service, build func(ctx context.Context, s *tenancy.Snapshot) (T, error), o Options) *Cache[T] {
	o.setDefaults()
	l := &Cache[T]{apps: s, build: build, options: o, checkNow: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.entries.entries = map[entryKey]*cacheEntry[T]{}
	l.stopWatch = s.WatchApps(l.handleSignal)
	return l
}

// Acquire returns the value of an app with the record it was built for, and release, which the caller must call when it
// is done with the value; release may be called more than once. Status, labels, revocations and roles of the record are
// the newest known. release is never nil.
//
// The error is [agentsvc.CodeNotFound] for an app that does not exist; [tenancy.ErrSuspended], together with the record,
// for a suspended one, which has no value; [ErrUnavailable] for one that cannot be read or built; [ErrClosed] after
// Close. A caller whose ctx ends stops waiting with the error of ctx; the build continues for later callers.
func (c *Cache[T]) Acquire(ctx context.Context, id db.ID) (value T, app *tenancy.App, release func(), err error) {
	return c.acquireEntry(ctx, entryKey{id: id})
}

// AcquireRevision is [Cache.Acquire] for a run that began with an older revision and must continue with it. A revision
// that is no longer stored is [agentsvc.CodeNotFound]. If the current revision cannot be built, the requested one is
// tried anyway. The default app has only its current revision, which is returned instead.
func (c *Cache[T]) AcquireRevision(ctx context.Context, id db.ID, revision int64) (value T, app *tenancy.App, release func(), err error) {
	value, app, release, err = c.acquireEntry(ctx, entryKey{id: id})
	if err == nil && id != tenancy.DefaultID && app.Revision != revision {
		release()
		return c.acquireEntry(ctx, entryKey{id, revision})
	}
	if errors.Is(err, ErrUnavailable) && id != tenancy.DefaultID {
		return c.acquireEntry(ctx, entryKey{id, revision})
	}
	return value, app, release, err
}

// acquireEntry returns the value of an entry. It loops because the entry may be evicted or its value replaced between
// two steps.
func (c *Cache[T]) acquireEntry(ctx context.Context, p entryKey) (value T, app *tenancy.App, release func(), err error) {
	var waitLimit <-chan time.Time
	for {
		s, fresh := c.entryFor(p)
		if fresh {
			c.evictExcess(s)
		}
		// The common case takes no lock of the entry: the value is loaded and no signal is unhandled.
		if s.isCurrent() {
			if u := s.instance.Load(); u != nil && u.addUser() {
				return u.valueWithRelease()
			}
		}
		f, err := c.currentLoad(s)
		switch {
		case errors.Is(err, errEvicted) || err == nil && f == nil:
			continue // the entry was replaced or has been loaded in the meantime
		case err != nil:
			return value, nil, noopRelease, err
		}
		// A previous value exists, so the caller waits for the new one at most MaxChangeWait in all iterations
		// together.
		if waitLimit == nil && s.instance.Load() != nil {
			t := time.NewTimer(c.options.MaxChangeWait)
			defer t.Stop()
			waitLimit = t.C
		}
		select {
		case <-f.done:
			if err = f.err; err == nil {
				continue
			}
		case <-waitLimit:
		case <-ctx.Done():
			return value, nil, noopRelease, ctx.Err()
		}
		if u := s.instance.Load(); u != nil && u.addUser() {
			return u.valueWithRelease() // the previous value stays in use
		}
		if err != nil {
			return value, nil, noopRelease, err
		}
	}
}

// noopRelease is the release function of results without a value.
func noopRelease() {}

// CheckActive returns [tenancy.ErrSuspended] or [agentsvc.CodeNotFound] for an app that must not be used, as far as this
// process knows, and nil in every other case, also if the app cannot be read. For a loaded app it does not wait: it may
// miss a change that has not been loaded yet, for which [Options.OnChange] is called later.
func (c *Cache[T]) CheckActive(ctx context.Context, id db.ID) error {
	if s := c.entries.findEntry(entryKey{id: id}); s != nil {
		if u := s.instance.Load(); u != nil {
			if u.suspended {
				return tenancy.ErrSuspended
			}
			return nil
		}
	}
	_, _, release, err := c.Acquire(ctx, id)
	release()
	if errors.Is(err, tenancy.ErrSuspended) || errors.Is(err, agentsvc.CodeNotFound) {
		return err
	}
	return nil
}

// AppName returns the name of an app whose record was read for its entry, "" for any other. It does not wait, so that a logger
// can call it.
func (c *Cache[T]) AppName(id db.ID) string {
	if s := c.entries.findEntry(entryKey{id: id}); s != nil {
		if name := s.name.Load(); name != nil {
			return *name
		}
	}
	return ""
}

// Len returns the number of entries, those of older revisions included.
func (c *Cache[T]) Len() int64 { return int64(c.entries.countEntries()) }

// Close cancels the builds under way, removes every entry, and waits until all unused values are closed. A value in use
// is closed by its last release.
func (c *Cache[T]) Close() {
	c.stopWatch()
	c.closeMu.Lock()
	c.closed = true
	c.closeMu.Unlock()
	c.cancel()
	for _, s := range c.entries.allEntries() {
		s.mu.Lock()
		s.evicted = true
		u := s.instance.Swap(nil)
		s.mu.Unlock()
		if u != nil {
			u.removeUser()
		}
	}
	c.work.Wait()
}

// startGoroutine runs f in a goroutine that Close waits for. After Close it does not run f and returns false.
func (c *Cache[T]) startGoroutine(f func()) bool {
	c.closeMu.RLock()
	defer c.closeMu.RUnlock()
	if c.closed {
		return false
	}
	c.work.Go(f)
	return true
}
