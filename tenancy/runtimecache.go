package tenancy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"stoa/tenancy/db"
)

// RuntimeCacheOptions tune a [RuntimeCache]. What is zero takes the value named beside it.
type RuntimeCacheOptions struct {
	MaxEntries    int           // values kept at once, those in use not counted out; 1024
	IdleTimeout   time.Duration // how long an unused value is kept; 15 minutes
	BuildTimeout  time.Duration // of reading and building one app; 30 seconds
	FailureTTL    time.Duration // how long a failed build is remembered before it is tried again; 1 second
	MaxChangeWait time.Duration // how long a caller waits for a change it may have made itself, before the old value serves; 1 second
	CheckInterval time.Duration // between looks for changes that no signal told of; 1 second

	// OnChange is called with an app's new record when it was loaded here and then changed: its status for one, which is
	// [Deleting] also once it is gone. It may be called more than once for a change. By then the record is in place: nobody
	// acquires a value of an app of which Changed was told that it is suspended or gone.
	OnChange func(App)
	// OnBuild is told of each build, how long it took with reading the app, and Evicted of each app that is given up for want of
	// use or room; both may be nil.
	OnBuild func(took time.Duration, err error)
	OnEvict func()
	Log     *slog.Logger
}

func (o *RuntimeCacheOptions) setDefaults() {
	o.MaxEntries = cmp.Or(o.MaxEntries, 1024)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 15*time.Minute)
	o.BuildTimeout = cmp.Or(o.BuildTimeout, 30*time.Second)
	o.FailureTTL = cmp.Or(o.FailureTTL, time.Second)
	o.MaxChangeWait = cmp.Or(o.MaxChangeWait, time.Second)
	o.CheckInterval = cmp.Or(o.CheckInterval, time.Second)
	if o.OnChange == nil {
		o.OnChange = func(App) {}
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

// RuntimeCache holds one built value per app: built when first asked for, once however many ask; replaced as a whole when the
// app changes; closed after its last user. A build that hangs or fails touches no other app. It is safe for
// concurrent use.
type RuntimeCache[T io.Closer] struct {
	apps      *Service
	build     func(ctx context.Context, s *Snapshot) (T, error)
	options   RuntimeCacheOptions
	ctx       context.Context // of builds; ends with Close
	cancel    context.CancelFunc
	stopWatch func()
	checkNow  chan struct{} // look for changes now
	entries   entryMap[T]

	closeMu sync.RWMutex
	closed  bool
	work    sync.WaitGroup // builds and closings under way
}

// NewRuntimeCache returns a live set over the apps of s that makes values with build. A build must heed its context; one that
// does not is given up at its deadline and its value closed when it comes. Close the set when done.
func NewRuntimeCache[T io.Closer](s *Service, build func(ctx context.Context, s *Snapshot) (T, error), o RuntimeCacheOptions) *RuntimeCache[T] {
	o.setDefaults()
	l := &RuntimeCache[T]{apps: s, build: build, options: o, checkNow: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.entries.initShards()
	l.stopWatch = s.bus.WatchTopic(TopicApp, l.handleSignal)
	return l
}

// Acquire returns the value of an app with the record it was built for, and release, which its user calls when done
// with the value. The record's status and token marks are the newest known.
//
// The error is [ErrNotFound] for an app that is not there, [ErrSuspended], together with the record, for one that is
// suspended and so has no value, or [ErrUnavailable] for one that cannot be built. A caller whose ctx ends stops
// waiting; the build goes on for the next.
func (l *RuntimeCache[T]) Acquire(ctx context.Context, id db.ID) (value T, app *App, release func(), err error) {
	return l.acquireEntry(ctx, entryKey{id: id})
}

// AcquireRevision is [RuntimeCache.Acquire] for a run that began with an older revision. A revision that is no longer kept is [ErrNotFound].
// The default app has only its current one.
func (l *RuntimeCache[T]) AcquireRevision(ctx context.Context, id db.ID, revision int64) (value T, app *App, release func(), err error) {
	value, app, release, err = l.acquireEntry(ctx, entryKey{id: id})
	if err == nil && id != DefaultID && app.Revision != revision {
		release()
		return l.acquireEntry(ctx, entryKey{id, revision})
	}
	if errors.Is(err, ErrUnavailable) && id != DefaultID {
		return l.acquireEntry(ctx, entryKey{id, revision})
	}
	return value, app, release, err
}

func (l *RuntimeCache[T]) acquireEntry(ctx context.Context, p entryKey) (value T, app *App, release func(), err error) {
	var waitLimit <-chan time.Time
	for {
		s, fresh := l.entryFor(p)
		if fresh {
			l.evictExcess(s)
		}
		if s.isCurrent() {
			if u := s.instance.Load(); u != nil && u.addUser() {
				return u.valueWithRelease()
			}
		}
		f, err := l.currentLoad(s)
		switch {
		case errors.Is(err, errEvicted) || err == nil && f == nil:
			continue // look again: it is another slot by now, or there
		case err != nil:
			return value, nil, noopRelease, err
		}
		if waitLimit == nil && s.instance.Load() != nil {
			t := time.NewTimer(l.options.MaxChangeWait)
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
			return u.valueWithRelease() // the old one serves on
		}
		if err != nil {
			return value, nil, noopRelease, err
		}
	}
}

func noopRelease() {}

// CheckActive returns [ErrSuspended] or [ErrNotFound] for an app that answers nobody, as far as is known here, and nil for any
// other. It waits for nothing where the app is loaded: [RuntimeCacheOptions].Changed is called after a change that it misses.
func (l *RuntimeCache[T]) CheckActive(ctx context.Context, id db.ID) error {
	if s := l.entries.findEntry(entryKey{id: id}); s != nil {
		if u := s.instance.Load(); u != nil {
			if u.suspended {
				return ErrSuspended
			}
			return nil
		}
	}
	_, _, release, err := l.Acquire(ctx, id)
	release()
	if errors.Is(err, ErrSuspended) || errors.Is(err, ErrNotFound) {
		return err
	}
	return nil
}

// Len counts the places that are held, for apps and for older revisions that runs go on with.
func (l *RuntimeCache[T]) Len() int64 { return l.entries.count.Load() }

// Close ends builds under way, gives up every value and waits for those that nobody uses to be closed. Those in use
// are closed by their last release.
func (l *RuntimeCache[T]) Close() {
	l.stopWatch()
	l.closeMu.Lock()
	l.closed = true
	l.closeMu.Unlock()
	l.cancel()
	for _, s := range l.entries.allEntries() {
		s.mu.Lock()
		s.evicted = true
		u := s.instance.Swap(nil)
		s.mu.Unlock()
		if u != nil {
			u.removeUser()
		}
	}
	l.work.Wait()
}

// startGoroutine runs f in a goroutine that Close waits for. After Close it does nothing and returns false.
func (l *RuntimeCache[T]) startGoroutine(f func()) bool {
	l.closeMu.RLock()
	defer l.closeMu.RUnlock()
	if l.closed {
		return false
	}
	l.work.Go(f)
	return true
}
