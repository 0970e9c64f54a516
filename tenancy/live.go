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

// LiveOptions tune a [Live]. What is zero takes the value named beside it.
type LiveOptions struct {
	Max          int           // values kept at once, those in use not counted out; 1024
	Idle         time.Duration // how long an unused value is kept; 15 minutes
	BuildTimeout time.Duration // of reading and building one app; 30 seconds
	Failure      time.Duration // how long a failed build is remembered before it is tried again; 1 second
	Patience     time.Duration // how long a caller waits for a change it may have made itself, before the old value serves; 1 second
	Check        time.Duration // between looks for changes that no signal told of; 1 second

	// Changed is called with an app's new record when it was loaded here and then changed: its status for one, which is
	// [Deleting] also once it is gone. It may be called more than once for a change. By then the record is in place: nobody
	// acquires a value of an app of which Changed was told that it is suspended or gone.
	Changed func(App)
	// Loaded is told of each build, how long it took with reading the app, and Evicted of each app that is given up for want of
	// use or room; both may be nil.
	Loaded  func(took time.Duration, err error)
	Evicted func()
	Log     *slog.Logger
}

func (o *LiveOptions) defaults() {
	o.Max = cmp.Or(o.Max, 1024)
	o.Idle = cmp.Or(o.Idle, 15*time.Minute)
	o.BuildTimeout = cmp.Or(o.BuildTimeout, 30*time.Second)
	o.Failure = cmp.Or(o.Failure, time.Second)
	o.Patience = cmp.Or(o.Patience, time.Second)
	o.Check = cmp.Or(o.Check, time.Second)
	if o.Changed == nil {
		o.Changed = func(App) {}
	}
	if o.Loaded == nil {
		o.Loaded = func(time.Duration, error) {}
	}
	if o.Evicted == nil {
		o.Evicted = func() {}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
}

// Live holds one built value per app: built when first asked for, once however many ask; replaced as a whole when the
// app changes; closed after its last user. A build that hangs or fails touches no other app. It is safe for
// concurrent use.
type Live[T io.Closer] struct {
	apps    *Service
	build   func(ctx context.Context, s *Snapshot) (T, error)
	options LiveOptions
	ctx     context.Context // of builds; ends with Close
	end     context.CancelFunc
	stop    func()
	wake    chan struct{} // look for changes now
	slots   shelf[T]

	life   sync.RWMutex
	closed bool
	work   sync.WaitGroup // builds and closings under way
}

// NewLive returns a live set over the apps of s that makes values with build. A build must heed its context; one that
// does not is given up at its deadline and its value closed when it comes. Close the set when done.
func NewLive[T io.Closer](s *Service, build func(ctx context.Context, s *Snapshot) (T, error), o LiveOptions) *Live[T] {
	o.defaults()
	l := &Live[T]{apps: s, build: build, options: o, wake: make(chan struct{}, 1)}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.slots.init()
	l.stop = s.bus.Watch(TopicApp, l.signalled)
	return l
}

// Acquire returns the value of an app with the record it was built for, and release, which its user calls when done
// with the value. The record's status and token marks are the newest known.
//
// The error is [ErrNotFound] for an app that is not there, [ErrSuspended], together with the record, for one that is
// suspended and so has no value, or [ErrUnavailable] for one that cannot be built. A caller whose ctx ends stops
// waiting; the build goes on for the next.
func (l *Live[T]) Acquire(ctx context.Context, id db.ID) (value T, app *App, release func(), err error) {
	return l.acquire(ctx, place{id: id})
}

// At is [Live.Acquire] for a run that began with an older revision. A revision that is no longer kept is [ErrNotFound].
// The default app has only its current one.
func (l *Live[T]) At(ctx context.Context, id db.ID, revision int64) (value T, app *App, release func(), err error) {
	value, app, release, err = l.acquire(ctx, place{id: id})
	if err == nil && id != DefaultID && app.Revision != revision {
		release()
		return l.acquire(ctx, place{id, revision})
	}
	if errors.Is(err, ErrUnavailable) && id != DefaultID {
		return l.acquire(ctx, place{id, revision})
	}
	return value, app, release, err
}

func (l *Live[T]) acquire(ctx context.Context, p place) (value T, app *App, release func(), err error) {
	var patience <-chan time.Time
	for {
		s, fresh := l.slot(p)
		if fresh {
			l.makeRoom(s)
		}
		if s.settled() {
			if u := s.unit.Load(); u != nil && u.retain() {
				return u.lend()
			}
		}
		f, err := l.load(s)
		switch {
		case errors.Is(err, errEvicted) || err == nil && f == nil:
			continue // look again: it is another slot by now, or there
		case err != nil:
			return value, nil, nothing, err
		}
		if patience == nil && s.unit.Load() != nil {
			t := time.NewTimer(l.options.Patience)
			defer t.Stop()
			patience = t.C
		}
		select {
		case <-f.done:
			if err = f.err; err == nil {
				continue
			}
		case <-patience:
		case <-ctx.Done():
			return value, nil, nothing, ctx.Err()
		}
		if u := s.unit.Load(); u != nil && u.retain() {
			return u.lend() // the old one serves on
		}
		if err != nil {
			return value, nil, nothing, err
		}
	}
}

func nothing() {}

// Ended returns [ErrSuspended] or [ErrNotFound] for an app that answers nobody, as far as is known here, and nil for any
// other. It waits for nothing where the app is loaded: [LiveOptions].Changed is called after a change that it misses.
func (l *Live[T]) Ended(ctx context.Context, id db.ID) error {
	if s := l.slots.find(place{id: id}); s != nil {
		if u := s.unit.Load(); u != nil {
			if u.empty {
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
func (l *Live[T]) Len() int64 { return l.slots.count.Load() }

// Close ends builds under way, gives up every value and waits for those that nobody uses to be closed. Those in use
// are closed by their last release.
func (l *Live[T]) Close() {
	l.stop()
	l.life.Lock()
	l.closed = true
	l.life.Unlock()
	l.end()
	for _, s := range l.slots.all() {
		s.mu.Lock()
		s.evicted = true
		u := s.unit.Swap(nil)
		s.mu.Unlock()
		if u != nil {
			u.drop()
		}
	}
	l.work.Wait()
}

// spawn runs f in a goroutine that Close waits for. After Close it does nothing and returns false.
func (l *Live[T]) spawn(f func()) bool {
	l.life.RLock()
	defer l.life.RUnlock()
	if l.closed {
		return false
	}
	l.work.Go(f)
	return true
}
