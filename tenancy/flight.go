package tenancy

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"stoa/tenancy/db"
)

// heed is how long a build may take to notice that its deadline has passed.
const heed = time.Second

// load returns the look at an app that is under way, a new one if it is due, or nothing if there is nothing to wait
// for. The error is that of a look not long ago.
func (l *Live[T]) load(s *slot[T]) (*flight, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.evicted:
		if l.ctx.Err() != nil {
			return nil, ErrClosed
		}
		return nil, errEvicted
	case s.flight != nil:
		return s.flight, nil
	case s.settled() && s.unit.Load() != nil:
		return nil, nil
	case s.settled() && s.err != nil && time.Now().Before(s.until):
		return nil, s.err
	}
	return l.start(s)
}

// refresh begins a look without anyone waiting, and reports whether it did: not where one is under way.
func (l *Live[T]) refresh(s *slot[T]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.evicted || s.flight != nil {
		return false
	}
	_, err := l.start(s)
	return err == nil
}

// start begins a look. s.mu is held and there is none under way.
func (l *Live[T]) start(s *slot[T]) (*flight, error) {
	f := &flight{done: make(chan struct{})}
	asked := s.asked.Load()
	if !l.spawn(func() { l.fly(s, f, asked) }) {
		return nil, ErrClosed
	}
	s.flight = f
	return f, nil
}

// fly takes a look and puts what came of it in place. An old unit stays where building fails. What has changed is told once
// it is in place and before the next look: who begins after that finds it, and who began before is there to be stopped.
func (l *Live[T]) fly(s *slot[T], f *flight, asked int64) {
	ctx, cancel := context.WithTimeout(l.ctx, l.options.BuildTimeout)
	defer cancel()
	next, changed, err := l.renew(ctx, s)
	if err != nil && !errors.Is(err, ErrNotFound) {
		l.options.Log.ErrorContext(ctx, "app cannot be loaded", "app", s.place.id, "revision", s.place.revision, "error", err)
	}

	s.mu.Lock()
	old := s.unit.Load()
	gone := errors.Is(err, ErrNotFound)
	if s.evicted { // the set was closed
		old, next, gone = next, nil, true
	} else if next != nil || gone {
		s.unit.Store(next)
	}
	s.mu.Unlock()

	if changed != nil {
		l.options.Changed(*changed)
	}

	s.mu.Lock()
	s.done.Store(asked)
	s.flight = nil
	s.failed(err, l.options.Failure)
	if s.asked.Load() != asked && s.unit.Load() != nil {
		_, _ = l.start(s)
	}
	s.mu.Unlock()

	f.err = err
	close(f.done)
	if old != nil && (next != nil || gone) {
		old.drop()
	}
}

// renew reads an app and returns the unit to put in place, nil if the one that is there stays, and the app's record where it
// is not the one that was loaded.
func (l *Live[T]) renew(ctx context.Context, s *slot[T]) (next *unit[T], changed *App, err error) {
	old, began := s.unit.Load(), time.Now()
	snap, err := l.apps.Snapshot(ctx, s.place.id, s.place.revision)
	switch {
	case errors.Is(err, ErrNotFound):
		if old != nil {
			gone := *old.app.Load()
			gone.Status = Deleting
			changed = &gone
		}
		return nil, changed, err
	case err != nil:
		return nil, nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	app := &snap.App
	s.seen.Store(app.Generation)
	if old != nil && old.app.Load().Generation != app.Generation {
		changed = app
	}
	switch {
	case app.Status == Suspended:
		u := newUnit(l, s, app)
		u.empty = true
		return u, changed, nil
	case old != nil && !old.empty && old.app.Load().builtAs(app):
		old.app.Store(app)
		return nil, changed, nil
	case old != nil && !old.empty:
		old.app.Store(old.app.Load().seenAs(app))
	}
	value, err := l.attempt(ctx, s, snap)
	l.options.Loaded(time.Since(began), err)
	if err != nil {
		return nil, changed, fmt.Errorf("%w: build app %s: %w", ErrUnavailable, app.Name, err)
	}
	u := newUnit(l, s, app)
	u.value = value
	return u, changed, nil
}

// attempt builds, and returns soon after the deadline even if the build does not. A value that comes too late is
// closed, and until then there is no other attempt.
func (l *Live[T]) attempt(ctx context.Context, s *slot[T], snap *Snapshot) (value T, err error) {
	if !s.building.CompareAndSwap(false, true) {
		return value, errors.New("an earlier build of it still hangs")
	}
	type outcome struct {
		value T
		err   error
	}
	built := make(chan outcome)
	late := make(chan struct{})
	go func() {
		v, err := l.guarded(ctx, snap)
		select {
		case built <- outcome{v, err}:
		case <-late:
			if err == nil {
				l.discard(s.place.id, v)
			}
			s.building.Store(false)
		}
	}()
	var overdue <-chan time.Time
	deadline := ctx.Done()
	for {
		select {
		case o := <-built:
			s.building.Store(false) // before the next look, which may follow at once
			return o.value, o.err
		case <-deadline:
			t := time.NewTimer(heed)
			defer t.Stop()
			deadline, overdue = nil, t.C
		case <-overdue:
			close(late)
			return value, fmt.Errorf("it took longer than %v", l.options.BuildTimeout)
		}
	}
}

// guarded builds and makes a panic an error: what a tenant configured must not end the process.
func (l *Live[T]) guarded(ctx context.Context, snap *Snapshot) (value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			l.options.Log.ErrorContext(ctx, "panic while building an app", "app", snap.App.ID, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return l.build(ctx, snap)
}

func (l *Live[T]) discard(id db.ID, value T) {
	if err := value.Close(); err != nil {
		l.options.Log.Error("close an app's old value", "app", id, "error", err)
	}
}
