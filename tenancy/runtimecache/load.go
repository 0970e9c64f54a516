package runtimecache

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// buildGrace is how long a build may take to return after its deadline. It distinguishes a build that observes its
// context from one that hangs.
const buildGrace = time.Second

// currentLoad returns the load that the caller has to wait for: the one under way, or a new one if one is due. It
// returns nil and no error if the value is current, and the error of the last load while that error is remembered.
func (c *Cache[T]) currentLoad(s *cacheEntry[T]) (*entryLoad, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.evicted:
		if c.ctx.Err() != nil {
			return nil, ErrClosed
		}
		return nil, errEvicted
	case s.load != nil:
		return s.load, nil
	case s.isCurrent() && s.instance.Load() != nil:
		return nil, nil
	case s.isCurrent() && s.err != nil && time.Now().Before(s.errUntil):
		return nil, s.err
	}
	return c.startLoad(s)
}

// refreshEntry starts a load that no caller waits for. It reports false if one is under way already or none can start.
func (c *Cache[T]) refreshEntry(s *cacheEntry[T]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.evicted || s.load != nil {
		return false
	}
	_, err := c.startLoad(s)
	return err == nil
}

// startLoad starts a load. It reads signals before the load begins, so that a signal during the load makes the entry
// outdated again. The caller holds s.mu, and no load is under way.
func (c *Cache[T]) startLoad(s *cacheEntry[T]) (*entryLoad, error) {
	f := &entryLoad{done: make(chan struct{})}
	signals := s.signals.Load()
	if !c.startGoroutine(func() { c.runLoad(s, f, signals) }) {
		return nil, ErrClosed
	}
	s.load = f
	return f, nil
}

// runLoad performs a load and stores its result. If the build fails the previous instance stays. OnChange is called
// after the instance is stored and before load is cleared: a caller that acquires the value later gets the new state,
// and one that acquired it earlier can be stopped by OnChange. If another signal arrived meanwhile, the next load
// starts at once.
func (c *Cache[T]) runLoad(s *cacheEntry[T], f *entryLoad, signals int64) {
	ctx, cancel := context.WithTimeout(c.ctx, c.options.BuildTimeout)
	defer cancel()
	next, changed, err := c.loadInstance(ctx, s)
	if err != nil && !errors.Is(err, agentsvc.CodeNotFound) {
		log := c.options.Log
		if name := s.name.Load(); name != nil {
			log = log.With("app", *name)
		}
		log.ErrorContext(ctx, "app cannot be loaded", "tenant", s.key.id, "revision", s.key.revision, "error", err)
	}

	s.mu.Lock()
	old := s.instance.Load()
	gone := errors.Is(err, agentsvc.CodeNotFound)
	if s.evicted { // the cache was closed
		old, next, gone = next, nil, true
	} else if next != nil || gone {
		s.instance.Store(next)
	}
	s.mu.Unlock()

	if changed != nil {
		c.options.OnChange(*changed)
	}

	s.mu.Lock()
	s.handledSignals.Store(signals)
	s.load = nil
	s.recordResult(err, c.options.FailureTTL)
	if s.signals.Load() != signals && s.instance.Load() != nil {
		_, _ = c.startLoad(s)
	}
	s.mu.Unlock()

	f.err = err
	close(f.done)
	if old != nil && (next != nil || gone) {
		old.removeUser()
	}
}

// loadInstance reads an app and returns the instance to store, nil if the present one stays. changed is the app's
// record if its generation differs from the one loaded before, nil if it does not or nothing was loaded. If only fields
// changed that no build reads, it updates the record of the present instance instead of building; the same fields are
// updated before a build, so that they take effect even if the build fails.
func (c *Cache[T]) loadInstance(ctx context.Context, s *cacheEntry[T]) (next *instance[T], changed *tenancy.App, err error) {
	old, began := s.instance.Load(), time.Now()
	snap, err := c.apps.LoadSnapshot(ctx, s.key.id, s.key.revision)
	switch {
	case errors.Is(err, agentsvc.CodeNotFound):
		if old != nil {
			gone := *old.app.Load()
			gone.Status = tenancy.Deleting
			changed = &gone
		}
		return nil, changed, err
	case err != nil:
		c.options.OnBuild(time.Since(began), err)
		return nil, nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	app := &snap.App
	s.name.Store(&app.Name)
	s.seenGeneration.Store(app.Generation)
	if old != nil && old.app.Load().Generation != app.Generation {
		changed = app
	}
	switch {
	case app.Status == tenancy.Suspended:
		u := newInstance(c, s, app)
		u.suspended = true
		return u, changed, nil
	// The present value fits the new record: no build.
	case old != nil && !old.suspended && old.app.Load().HasSameBuild(app):
		old.app.Store(app)
		return nil, changed, nil
	// A build follows, which may fail: apply status, revocations and roles to the present value now.
	case old != nil && !old.suspended:
		old.app.Store(old.app.Load().WithRecordOf(app))
	}
	value, err := c.buildWithDeadline(ctx, s, snap)
	c.options.OnBuild(time.Since(began), err)
	if err != nil {
		return nil, changed, fmt.Errorf("%w: build app %s: %w", ErrUnavailable, app.Name, err)
	}
	u := newInstance(c, s, app)
	u.value = value
	return u, changed, nil
}

// buildWithDeadline calls build and returns within buildGrace after the deadline even if build does not. A value that
// arrives later is closed. While such a build is still running, further attempts fail at once.
func (c *Cache[T]) buildWithDeadline(ctx context.Context, s *cacheEntry[T], snap *tenancy.Snapshot) (value T, err error) {
	if !s.building.CompareAndSwap(false, true) {
		return value, errors.New("an earlier build of it has not ended")
	}
	type outcome struct {
		value T
		err   error
	}
	built := make(chan outcome)
	late := make(chan struct{})
	go func() {
		v, err := c.buildSafely(ctx, snap)
		select {
		case built <- outcome{v, err}:
		case <-late:
			if err == nil {
				c.closeValue(s.key.id, v)
			}
			s.building.Store(false)
		}
	}()
	var overdue <-chan time.Time
	deadline := ctx.Done()
	for {
		select {
		case o := <-built:
			s.building.Store(false) // before the next load, which may start at once
			return o.value, o.err
		case <-deadline:
			t := time.NewTimer(buildGrace)
			defer t.Stop()
			deadline, overdue = nil, t.C
		case <-overdue:
			close(late)
			return value, fmt.Errorf("it took longer than %v", c.options.BuildTimeout)
		}
	}
}

// buildSafely calls build and turns a panic into an error: a tenant's configuration must not end the process.
func (c *Cache[T]) buildSafely(ctx context.Context, snap *tenancy.Snapshot) (value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.options.Log.ErrorContext(ctx, "panic while building an app", "tenant", snap.App.ID, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return c.build(ctx, snap)
}

// closeValue closes a value that is no longer used. An error is only logged, since no caller waits for it.
func (c *Cache[T]) closeValue(id db.ID, value T) {
	if err := value.Close(); err != nil {
		c.options.Log.Error("close an app's old runtime", "tenant", id, "error", err)
	}
}
