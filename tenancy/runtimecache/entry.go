package runtimecache

import (
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

// entryKey identifies an entry: an app at its current revision (revision 0), or at a certain older one.
type entryKey struct {
	id       db.ID
	revision int64
}

// cacheEntry is the state of one app in a [Cache]. Its atomic fields let Acquire return a loaded value without
// taking a lock.
//
// The entry is current while handledSignals equals signals. A signal increments signals, so that from then on callers
// wait for a load that began after the signal instead of taking the old value.
type cacheEntry[T io.Closer] struct {
	key entryKey
	// instance is the value with its users, nil until the first load succeeds and after eviction. It is stored under
	// mu.
	instance atomic.Pointer[instance[T]]
	// name is the app's, nil until its record was read. A line of the log about a build that fails has it.
	name atomic.Pointer[string]
	// lastUsed is the time of the last use, in nanoseconds since 1970.
	lastUsed atomic.Int64
	// signals counts the signals received for the app.
	signals atomic.Int64
	// handledSignals is the value of signals when the last completed load began.
	handledSignals atomic.Int64
	// seenGeneration is the app's generation at the last load.
	seenGeneration atomic.Int64

	// building is set while a build function has not returned, also when its deadline has passed. A second build is not
	// started meanwhile, so that hanging builds do not accumulate.
	building atomic.Bool

	// mu guards the fields below and the replacement of instance.
	mu sync.Mutex
	// load is the load under way, nil if there is none.
	load *entryLoad
	// evicted is set when the entry has left the map; callers must look the key up again.
	evicted bool
	// err is the result of the last load. Callers get it until errUntil without a new load.
	err      error
	errUntil time.Time
	// retryAt is when the periodic check repeats a failed load without a caller; failures counts consecutive failures
	// and determines the pause.
	retryAt  time.Time
	failures int
}

// entryLoad is one load of an app, which any number of callers wait for. err is written before done is closed and
// read-only afterwards.
type entryLoad struct {
	done chan struct{}
	err  error
}

// maxRetryPause bounds the exponential pause between two automatic attempts to load an app whose build fails.
const maxRetryPause = 30 * time.Second

// errEvicted reports that the entry was removed from the map while the caller held it; it never leaves this package.
var errEvicted = errors.New("evicted")

// isCurrent reports whether every signal has been handled. A value loaded from instance afterwards is at least as new.
func (e *cacheEntry[T]) isCurrent() bool {
	signals := e.signals.Load()
	return e.handledSignals.Load() == signals
}

// recordResult stores the result of a load. Callers get err for the time pause; automatic retries wait for pause
// doubled with each consecutive failure, up to maxRetryPause. The caller holds e.mu.
func (e *cacheEntry[T]) recordResult(err error, pause time.Duration) {
	e.err, e.errUntil = err, time.Now().Add(pause)
	if err == nil {
		e.failures = 0
		return
	}
	e.retryAt = time.Now().Add(min(pause<<e.failures, maxRetryPause))
	e.failures = min(e.failures+1, 10)
}

// isRetryDue reports whether the last load failed and its automatic retry is due.
func (e *cacheEntry[T]) isRetryDue() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err != nil && time.Now().After(e.retryAt)
}

func (e *cacheEntry[T]) markUsed() { e.lastUsed.Store(time.Now().UnixNano()) }

// instance is a built value with a count of its users. The entry that holds it counts as one user. When the count
// reaches 0 the value is closed and can never be acquired again.
type instance[T io.Closer] struct {
	cache *Cache[T]
	entry *cacheEntry[T]
	value T
	// suspended means that the app was suspended when it was loaded; value is then the zero value and is never closed.
	suspended bool
	// app is the newest record that the value is valid for. It is replaced when only fields changed that no build
	// reads.
	app atomic.Pointer[tenancy.App]
	// users counts the users, the entry included.
	users atomic.Int64
}

// newInstance returns an instance with one user, the entry.
func newInstance[T io.Closer](l *Cache[T], s *cacheEntry[T], app *tenancy.App) *instance[T] {
	u := &instance[T]{cache: l, entry: s}
	u.app.Store(app)
	u.users.Store(1)
	return u
}

// addUser adds a user and reports true, or reports false if the value has been closed: the count must not rise from 0.
func (i *instance[T]) addUser() bool {
	for {
		n := i.users.Load()
		if n == 0 {
			return false
		}
		if i.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// valueWithRelease returns the value to a caller that has been added as a user. For a suspended app it removes that
// user again and returns [tenancy.ErrSuspended] with the record. The release function may be called more than once.
func (i *instance[T]) valueWithRelease() (value T, app *tenancy.App, release func(), err error) {
	i.entry.markUsed()
	if i.suspended {
		i.removeUser()
		return value, i.app.Load(), noopRelease, tenancy.ErrSuspended
	}
	var returned atomic.Bool
	return i.value, i.app.Load(), func() {
		if returned.CompareAndSwap(false, true) {
			i.entry.markUsed()
			i.removeUser()
		}
	}, nil
}

// removeUser removes a user and closes the value after the last one.
func (i *instance[T]) removeUser() {
	if i.users.Add(-1) == 0 {
		i.closeInstance()
	}
}

// closeInstance closes the value in a goroutine, since Close may wait for work of the value; after the cache was closed
// it does so in the caller's.
func (i *instance[T]) closeInstance() {
	if i.suspended {
		return
	}
	work := func() { i.cache.closeValue(i.entry.key.id, i.value) }
	if !i.cache.startGoroutine(work) {
		work()
	}
}

// entryMap holds the entries. mu guards entries.
type entryMap[T io.Closer] struct {
	mu      sync.RWMutex
	entries map[entryKey]*cacheEntry[T]
}

// findEntry returns the entry of p, nil if there is none.
func (m *entryMap[T]) findEntry(p entryKey) *cacheEntry[T] {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.entries[p]
}

// addEntry returns the entry of p, and whether it was created by this call.
func (m *entryMap[T]) addEntry(p entryKey) (s *cacheEntry[T], fresh bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s = m.entries[p]; s != nil {
		return s, false
	}
	s = &cacheEntry[T]{key: p}
	s.markUsed()
	m.entries[p] = s
	return s, true
}

func (m *entryMap[T]) removeEntry(s *cacheEntry[T]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, s.key)
}

func (m *entryMap[T]) countEntries() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.entries)
}

func (m *entryMap[T]) allEntries() []*cacheEntry[T] {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Collect(maps.Values(m.entries))
}
