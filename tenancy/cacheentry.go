package tenancy

import (
	"errors"
	"hash/maphash"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"stoa/tenancy/db"
)

// entryKey is where a value stands: an app at the revision in force (0), or at an older one.
type entryKey struct {
	id       db.ID
	revision int64
}

// cacheEntry is what a live set knows of one place.
type cacheEntry[T io.Closer] struct {
	key            entryKey
	instance       atomic.Pointer[instance[T]]
	lastUsed       atomic.Int64 // nanoseconds of the last use
	signals        atomic.Int64 // signals so far
	handledSignals atomic.Int64 // signals that the last look took account of
	seenGeneration atomic.Int64 // generation at the last look

	building atomic.Bool // a build has not returned, its deadline past or not

	mu       sync.Mutex
	load     *entryLoad
	evicted  bool
	err      error     // of the last look
	errUntil time.Time // err is the answer to callers
	retryAt  time.Time // the next look if nobody asks
	failures int       // in a row
}

// entryLoad is one look at an app, with its build, that any number of callers wait for. err is set before done closes.
type entryLoad struct {
	done chan struct{}
	err  error
}

// maxRetryPause bounds the time between two attempts to renew an app whose build fails.
const maxRetryPause = 30 * time.Second

var errEvicted = errors.New("evicted")

// isCurrent reports whether every signal was taken account of. What is loaded from the slot afterwards is as new.
func (s *cacheEntry[T]) isCurrent() bool {
	signals := s.signals.Load()
	return s.handledSignals.Load() == signals
}

// recordResult remembers err, for callers and, the longer the more often it failed, for looks that nobody asked for. s.mu is
// held.
func (s *cacheEntry[T]) recordResult(err error, pause time.Duration) {
	s.err, s.errUntil = err, time.Now().Add(pause)
	if err == nil {
		s.failures = 0
		return
	}
	s.retryAt = time.Now().Add(min(pause<<s.failures, maxRetryPause))
	s.failures = min(s.failures+1, 10)
}

// isRetryDue reports whether the last look failed and it is time for another.
func (s *cacheEntry[T]) isRetryDue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil && time.Now().After(s.retryAt)
}

func (s *cacheEntry[T]) markUsed() { s.lastUsed.Store(time.Now().UnixNano()) }

// instance is a built value and its users. Its slot counts as one of them.
type instance[T io.Closer] struct {
	cache     *RuntimeCache[T]
	entry     *cacheEntry[T]
	value     T
	suspended bool // a suspended app has no value
	app       atomic.Pointer[App]
	users     atomic.Int64
}

func newInstance[T io.Closer](l *RuntimeCache[T], s *cacheEntry[T], app *App) *instance[T] {
	u := &instance[T]{cache: l, entry: s}
	u.app.Store(app)
	u.users.Store(1)
	return u
}

// addUser adds a user unless the last has gone.
func (u *instance[T]) addUser() bool {
	for {
		n := u.users.Load()
		if n == 0 {
			return false
		}
		if u.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// valueWithRelease hands a retained unit to its user.
func (u *instance[T]) valueWithRelease() (value T, app *App, release func(), err error) {
	u.entry.markUsed()
	if u.suspended {
		u.removeUser()
		return value, u.app.Load(), noopRelease, ErrSuspended
	}
	var returned atomic.Bool
	return u.value, u.app.Load(), func() {
		if returned.CompareAndSwap(false, true) {
			u.entry.markUsed()
			u.removeUser()
		}
	}, nil
}

// removeUser takes a user away and closes the value after the last.
func (u *instance[T]) removeUser() {
	if u.users.Add(-1) == 0 {
		u.closeInstance()
	}
}

func (u *instance[T]) closeInstance() {
	if u.suspended {
		return
	}
	work := func() { u.cache.closeValue(u.entry.key.id, u.value) }
	if !u.cache.startGoroutine(work) {
		work()
	}
}

// entryMap holds the slots, in parts so that looking one up contends with few others.
type entryMap[T io.Closer] struct {
	seed   maphash.Seed
	shards [64]entryShard[T]
	count  atomic.Int64
}

type entryShard[T io.Closer] struct {
	mu      sync.RWMutex
	entries map[entryKey]*cacheEntry[T]
}

func (h *entryMap[T]) initShards() {
	h.seed = maphash.MakeSeed()
	for i := range h.shards {
		h.shards[i].entries = map[entryKey]*cacheEntry[T]{}
	}
}

func (h *entryMap[T]) shardOf(p entryKey) *entryShard[T] {
	return &h.shards[maphash.String(h.seed, string(p.id))%uint64(len(h.shards))]
}

// findEntry returns the slot of p, nil if there is none.
func (h *entryMap[T]) findEntry(p entryKey) *cacheEntry[T] {
	at := h.shardOf(p)
	at.mu.RLock()
	defer at.mu.RUnlock()
	return at.entries[p]
}

// addEntry returns the slot of p and whether it is new.
func (h *entryMap[T]) addEntry(p entryKey) (s *cacheEntry[T], fresh bool) {
	at := h.shardOf(p)
	at.mu.Lock()
	defer at.mu.Unlock()
	if s = at.entries[p]; s != nil {
		return s, false
	}
	s = &cacheEntry[T]{key: p}
	s.markUsed()
	at.entries[p] = s
	h.count.Add(1)
	return s, true
}

func (h *entryMap[T]) removeEntry(s *cacheEntry[T]) {
	at := h.shardOf(s.key)
	at.mu.Lock()
	defer at.mu.Unlock()
	delete(at.entries, s.key)
	h.count.Add(-1)
}

func (h *entryMap[T]) allEntries() []*cacheEntry[T] {
	all := make([]*cacheEntry[T], 0, h.count.Load())
	for i := range h.shards {
		at := &h.shards[i]
		at.mu.RLock()
		for _, s := range at.entries {
			all = append(all, s)
		}
		at.mu.RUnlock()
	}
	return all
}
