package tenancy

import (
	"cmp"
	"context"
	"slices"
	"time"

	"stoa/tenancy/db"
)

// checkTimeout bounds one look for changed apps.
const checkTimeout = 5 * time.Second

// entryFor returns the slot of p and whether it was made for it.
func (l *RuntimeCache[T]) entryFor(p entryKey) (s *cacheEntry[T], fresh bool) {
	if s = l.entries.findEntry(p); s != nil {
		return s, false
	}
	return l.entries.addEntry(p)
}

// Run keeps values current and few: it looks every second, and when told to, which loaded apps have changed in
// whichever process, and gives up what nobody has used for long. It lives until ctx ends.
func (l *RuntimeCache[T]) Run(ctx context.Context) error {
	tick := time.NewTicker(l.options.CheckInterval)
	defer tick.Stop()
	healthy := true
	for {
		select {
		case <-tick.C:
		case <-l.checkNow:
		case <-ctx.Done():
			return ctx.Err()
		}
		err := l.checkGenerations(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if (err == nil) != healthy {
			healthy = err == nil
			if healthy {
				l.options.Log.InfoContext(ctx, "apps are looked after again")
			} else {
				l.options.Log.ErrorContext(ctx, "apps are served as last known", "error", err)
			}
		}
		l.evictIdle()
	}
}

// handleSignal is told of an app that changed; "" = any.
func (l *RuntimeCache[T]) handleSignal(id string) {
	if id == "" {
		select {
		case l.checkNow <- struct{}{}:
		default:
		}
		return
	}
	s := l.entries.findEntry(entryKey{id: db.ID(id)})
	if s == nil {
		return
	}
	s.signals.Add(1)
	if s.instance.Load() != nil {
		l.refreshEntry(s)
	}
}

// checkGenerations renews the loaded apps whose generation is not the one last seen, and those whose last build failed.
func (l *RuntimeCache[T]) checkGenerations(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var loaded []*cacheEntry[T]
	var ids []db.ID
	for _, s := range l.entries.allEntries() {
		if s.instance.Load() != nil {
			loaded = append(loaded, s)
			ids = append(ids, s.key.id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	now, err := l.apps.readGenerations(ctx, slices.Compact(ids))
	if err != nil {
		return err
	}
	for _, s := range loaded {
		generation := now[s.key.id] // 0: gone
		if (generation != s.seenGeneration.Load() || s.isRetryDue()) && l.refreshEntry(s) {
			s.seenGeneration.Store(generation)
		}
	}
	return nil
}

// evictIdle gives up what was not used for long.
func (l *RuntimeCache[T]) evictIdle() {
	since := time.Now().Add(-l.options.IdleTimeout).UnixNano()
	forgotten := time.Now().Add(-10 * l.options.FailureTTL).UnixNano()
	for _, s := range l.entries.allEntries() {
		used := s.lastUsed.Load()
		if used < since || used < forgotten && s.instance.Load() == nil {
			l.evictEntry(s)
		}
	}
}

// evictExcess gives up the longest unused places, those without a value first, when there are too many. It leaves fresh,
// and what is in use.
func (l *RuntimeCache[T]) evictExcess(fresh *cacheEntry[T]) {
	if l.entries.count.Load() <= int64(l.options.MaxEntries) {
		return
	}
	all := l.entries.allEntries()
	excess := len(all) - l.options.MaxEntries + l.options.MaxEntries/16 // some more, so that the next newcomers find room
	slices.SortFunc(all, func(a, b *cacheEntry[T]) int { return cmp.Compare(a.evictionRank(), b.evictionRank()) })
	for _, s := range all {
		if excess <= 0 {
			return
		}
		if s != fresh && l.evictEntry(s) {
			excess--
		}
	}
}

// evictionRank orders slots for eviction: the time of the last use, nothing for those without a value.
func (s *cacheEntry[T]) evictionRank() int64 {
	if s.instance.Load() == nil {
		return 0
	}
	return s.lastUsed.Load()
}

// evictEntry takes a slot away unless it is in use, and reports whether it did.
func (l *RuntimeCache[T]) evictEntry(s *cacheEntry[T]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.instance.Load()
	if s.evicted || s.load != nil || s.building.Load() || u != nil && !u.users.CompareAndSwap(1, 0) {
		return false
	}
	s.evicted = true
	s.instance.Store(nil)
	l.entries.removeEntry(s)
	if u != nil {
		u.closeInstance()
		l.options.OnEvict()
	}
	return true
}
