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

// place is where a value stands: an app at the revision in force (0), or at an older one.
type place struct {
	id       db.ID
	revision int64
}

// slot is what a live set knows of one place.
type slot[T io.Closer] struct {
	place place
	unit  atomic.Pointer[unit[T]]
	used  atomic.Int64 // nanoseconds of the last use
	asked atomic.Int64 // signals so far
	done  atomic.Int64 // signals that the last look took account of
	seen  atomic.Int64 // generation at the last look

	building atomic.Bool // a build has not returned, its deadline past or not

	mu      sync.Mutex
	flight  *flight
	evicted bool
	err     error     // of the last look
	until   time.Time // err is the answer to callers
	again   time.Time // the next look if nobody asks
	fails   int       // in a row
}

// flight is one look at an app, with its build, that any number of callers wait for. err is set before done closes.
type flight struct {
	done chan struct{}
	err  error
}

// maxPause bounds the time between two attempts to renew an app whose build fails.
const maxPause = 30 * time.Second

var errEvicted = errors.New("evicted")

// settled reports whether every signal was taken account of. What is loaded from the slot afterwards is as new.
func (s *slot[T]) settled() bool {
	asked := s.asked.Load()
	return s.done.Load() == asked
}

// failed remembers err, for callers and, the longer the more often it failed, for looks that nobody asked for. s.mu is
// held.
func (s *slot[T]) failed(err error, pause time.Duration) {
	s.err, s.until = err, time.Now().Add(pause)
	if err == nil {
		s.fails = 0
		return
	}
	s.again = time.Now().Add(min(pause<<s.fails, maxPause))
	s.fails = min(s.fails+1, 10)
}

// due reports whether the last look failed and it is time for another.
func (s *slot[T]) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil && time.Now().After(s.again)
}

func (s *slot[T]) touch() { s.used.Store(time.Now().UnixNano()) }

// unit is a built value and its users. Its slot counts as one of them.
type unit[T io.Closer] struct {
	live  *Live[T]
	slot  *slot[T]
	value T
	empty bool // a suspended app has no value
	app   atomic.Pointer[App]
	users atomic.Int64
}

func newUnit[T io.Closer](l *Live[T], s *slot[T], app *App) *unit[T] {
	u := &unit[T]{live: l, slot: s}
	u.app.Store(app)
	u.users.Store(1)
	return u
}

// retain adds a user unless the last has gone.
func (u *unit[T]) retain() bool {
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

// lend hands a retained unit to its user.
func (u *unit[T]) lend() (value T, app *App, release func(), err error) {
	u.slot.touch()
	if u.empty {
		u.drop()
		return value, u.app.Load(), nothing, ErrSuspended
	}
	var returned atomic.Bool
	return u.value, u.app.Load(), func() {
		if returned.CompareAndSwap(false, true) {
			u.slot.touch()
			u.drop()
		}
	}, nil
}

// drop takes a user away and closes the value after the last.
func (u *unit[T]) drop() {
	if u.users.Add(-1) == 0 {
		u.close()
	}
}

func (u *unit[T]) close() {
	if u.empty {
		return
	}
	work := func() { u.live.discard(u.slot.place.id, u.value) }
	if !u.live.spawn(work) {
		work()
	}
}

// shelf holds the slots, in parts so that looking one up contends with few others.
type shelf[T io.Closer] struct {
	seed  maphash.Seed
	parts [64]part[T]
	count atomic.Int64
}

type part[T io.Closer] struct {
	mu    sync.RWMutex
	slots map[place]*slot[T]
}

func (h *shelf[T]) init() {
	h.seed = maphash.MakeSeed()
	for i := range h.parts {
		h.parts[i].slots = map[place]*slot[T]{}
	}
}

func (h *shelf[T]) part(p place) *part[T] {
	return &h.parts[maphash.String(h.seed, string(p.id))%uint64(len(h.parts))]
}

// find returns the slot of p, nil if there is none.
func (h *shelf[T]) find(p place) *slot[T] {
	at := h.part(p)
	at.mu.RLock()
	defer at.mu.RUnlock()
	return at.slots[p]
}

// add returns the slot of p and whether it is new.
func (h *shelf[T]) add(p place) (s *slot[T], fresh bool) {
	at := h.part(p)
	at.mu.Lock()
	defer at.mu.Unlock()
	if s = at.slots[p]; s != nil {
		return s, false
	}
	s = &slot[T]{place: p}
	s.touch()
	at.slots[p] = s
	h.count.Add(1)
	return s, true
}

func (h *shelf[T]) remove(s *slot[T]) {
	at := h.part(s.place)
	at.mu.Lock()
	defer at.mu.Unlock()
	delete(at.slots, s.place)
	h.count.Add(-1)
}

func (h *shelf[T]) all() []*slot[T] {
	all := make([]*slot[T], 0, h.count.Load())
	for i := range h.parts {
		at := &h.parts[i]
		at.mu.RLock()
		for _, s := range at.slots {
			all = append(all, s)
		}
		at.mu.RUnlock()
	}
	return all
}
