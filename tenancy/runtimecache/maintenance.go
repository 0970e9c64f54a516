package runtimecache

import (
	"cmp"
	"context"
	"slices"
	"time"

	"stoa/tenancy/db"
)

// checkTimeout bounds one comparison of generations with the database.
const checkTimeout = 5 * time.Second

// entryFor returns the entry of p, and whether it was created by this call.
func (c *Cache[T]) entryFor(p entryKey) (s *cacheEntry[T], fresh bool) {
	if s = c.entries.findEntry(p); s != nil {
		return s, false
	}
	return c.entries.addEntry(p)
}

// Run keeps values current and bounds their number until ctx ends, whose error it returns. Every CheckInterval, and
// when a signal says that any app may have changed, it compares the generations of loaded apps with the database and
// evicts idle entries. While the database does not answer, apps are served as last known; this is logged once at each
// transition.
func (c *Cache[T]) Run(ctx context.Context) error {
	tick := time.NewTicker(c.options.CheckInterval)
	defer tick.Stop()
	healthy := true
	for {
		select {
		case <-tick.C:
		case <-c.checkNow:
		case <-ctx.Done():
			return ctx.Err()
		}
		err := c.checkGenerations(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if (err == nil) != healthy {
			healthy = err == nil
			if healthy {
				c.options.Log.InfoContext(ctx, "apps are checked for changes again")
			} else {
				c.options.Log.ErrorContext(ctx, "apps are served as last known", "error", err)
			}
		}
		c.evictIdle()
	}
}

// handleSignal handles a signal on [tenancy.TopicApp]: it marks the app's entry as outdated and starts a load if it has
// a value. The id "" means that any app may have changed, for instance after a lost connection. It runs in the
// publisher's goroutine and does not block. Entries of older revisions get no signals; [Cache.checkGenerations]
// refreshes them.
func (c *Cache[T]) handleSignal(id string) {
	if id == "" {
		select {
		case c.checkNow <- struct{}{}:
		default:
		}
		return
	}
	s := c.entries.findEntry(entryKey{id: db.ID(id)})
	if s == nil {
		return
	}
	s.signals.Add(1)
	if s.instance.Load() != nil {
		c.refreshEntry(s)
	}
}

// checkGenerations starts a load for each loaded app whose generation in the database differs from the one last seen,
// and for each whose last load failed and is due for a retry.
func (c *Cache[T]) checkGenerations(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var loaded []*cacheEntry[T]
	var ids []db.ID
	for _, s := range c.entries.allEntries() {
		if s.instance.Load() != nil {
			loaded = append(loaded, s)
			ids = append(ids, s.key.id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	now, err := c.apps.ReadGenerations(ctx, slices.Compact(ids))
	if err != nil {
		return err
	}
	for _, s := range loaded {
		generation := now[s.key.id] // 0 = deleted
		if (generation != s.seenGeneration.Load() || s.isRetryDue()) && c.refreshEntry(s) {
			s.seenGeneration.Store(generation)
		}
	}
	return nil
}

// evictIdle removes entries that were not used for IdleTimeout, and entries without a value already after ten times
// FailureTTL: those remember only an error.
func (c *Cache[T]) evictIdle() {
	since := time.Now().Add(-c.options.IdleTimeout).UnixNano()
	forgotten := time.Now().Add(-10 * c.options.FailureTTL).UnixNano()
	for _, s := range c.entries.allEntries() {
		used := s.lastUsed.Load()
		if used < since || used < forgotten && s.instance.Load() == nil {
			c.evictEntry(s)
		}
	}
}

// evictExcess removes the least recently used entries, those without a value first, if there are more than MaxEntries.
// It keeps fresh, the entry that the caller is about to load, and entries in use.
func (c *Cache[T]) evictExcess(fresh *cacheEntry[T]) {
	if c.entries.countEntries() <= c.options.MaxEntries {
		return
	}
	all := c.entries.allEntries()
	excess := len(all) - c.options.MaxEntries + c.options.MaxEntries/16 // evict 1/16 more, so that not every new entry sorts all of them
	slices.SortFunc(all, func(a, b *cacheEntry[T]) int { return cmp.Compare(a.evictionRank(), b.evictionRank()) })
	for _, s := range all {
		if excess <= 0 {
			return
		}
		if s != fresh && c.evictEntry(s) {
			excess--
		}
	}
}

// evictionRank orders entries for eviction, the lowest first: the time of the last use, 0 for those without a value.
func (e *cacheEntry[T]) evictionRank() int64 {
	if e.instance.Load() == nil {
		return 0
	}
	return e.lastUsed.Load()
}

// evictEntry removes an entry unless it is in use or loading, and reports whether it did. Changing users from 1 to 0
// takes the entry's own reference away in one step, so that no caller can add itself in between.
func (c *Cache[T]) evictEntry(s *cacheEntry[T]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.instance.Load()
	if s.evicted || s.load != nil || s.building.Load() || u != nil && !u.users.CompareAndSwap(1, 0) {
		return false
	}
	s.evicted = true
	s.instance.Store(nil)
	c.entries.removeEntry(s)
	if u != nil {
		u.closeInstance()
		c.options.OnEvict()
	}
	return true
}
