package tenancy

import (
	"cmp"
	"context"
	"slices"
	"time"

	"stoa/tenancy/db"
)

// lookTimeout bounds one look for changed apps.
const lookTimeout = 5 * time.Second

// slot returns the slot of p and whether it was made for it.
func (l *Live[T]) slot(p place) (s *slot[T], fresh bool) {
	if s = l.slots.find(p); s != nil {
		return s, false
	}
	return l.slots.add(p)
}

// Run keeps values current and few: it looks every second, and when told to, which loaded apps have changed in
// whichever process, and gives up what nobody has used for long. It lives until ctx ends.
func (l *Live[T]) Run(ctx context.Context) error {
	tick := time.NewTicker(l.options.Check)
	defer tick.Stop()
	healthy := true
	for {
		select {
		case <-tick.C:
		case <-l.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
		err := l.look(ctx)
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
		l.expire()
	}
}

// signalled is told of an app that changed; "" = any.
func (l *Live[T]) signalled(id string) {
	if id == "" {
		select {
		case l.wake <- struct{}{}:
		default:
		}
		return
	}
	s := l.slots.find(place{id: db.ID(id)})
	if s == nil {
		return
	}
	s.asked.Add(1)
	if s.unit.Load() != nil {
		l.refresh(s)
	}
}

// look renews the loaded apps whose generation is not the one last seen, and those whose last build failed.
func (l *Live[T]) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var loaded []*slot[T]
	var ids []db.ID
	for _, s := range l.slots.all() {
		if s.unit.Load() != nil {
			loaded = append(loaded, s)
			ids = append(ids, s.place.id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	now, err := l.apps.generations(ctx, slices.Compact(ids))
	if err != nil {
		return err
	}
	for _, s := range loaded {
		generation := now[s.place.id] // 0: gone
		if (generation != s.seen.Load() || s.due()) && l.refresh(s) {
			s.seen.Store(generation)
		}
	}
	return nil
}

// expire gives up what was not used for long.
func (l *Live[T]) expire() {
	since := time.Now().Add(-l.options.Idle).UnixNano()
	forgotten := time.Now().Add(-10 * l.options.Failure).UnixNano()
	for _, s := range l.slots.all() {
		used := s.used.Load()
		if used < since || used < forgotten && s.unit.Load() == nil {
			l.evict(s)
		}
	}
}

// makeRoom gives up the longest unused places, those without a value first, when there are too many. It leaves fresh,
// and what is in use.
func (l *Live[T]) makeRoom(fresh *slot[T]) {
	if l.slots.count.Load() <= int64(l.options.Max) {
		return
	}
	all := l.slots.all()
	excess := len(all) - l.options.Max + l.options.Max/16 // some more, so that the next newcomers find room
	slices.SortFunc(all, func(a, b *slot[T]) int { return cmp.Compare(a.worth(), b.worth()) })
	for _, s := range all {
		if excess <= 0 {
			return
		}
		if s != fresh && l.evict(s) {
			excess--
		}
	}
}

// worth orders slots for eviction: the time of the last use, nothing for those without a value.
func (s *slot[T]) worth() int64 {
	if s.unit.Load() == nil {
		return 0
	}
	return s.used.Load()
}

// evict takes a slot away unless it is in use, and reports whether it did.
func (l *Live[T]) evict(s *slot[T]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.unit.Load()
	if s.evicted || s.flight != nil || s.building.Load() || u != nil && !u.users.CompareAndSwap(1, 0) {
		return false
	}
	s.evicted = true
	s.unit.Store(nil)
	l.slots.remove(s)
	if u != nil {
		u.close()
		l.options.Evicted()
	}
	return true
}
