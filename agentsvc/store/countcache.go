package store

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"stoa/tenancy/db"
)

// countCache keeps how many of a tenant's older tasks filters choose: to count them costs far more than to read a page of them.
// Younger ones are counted every time. What is kept is counted anew when it is [countTTL] old, and when this process has
// deleted tasks; those that somebody else deletes are counted until then.
type countCache struct {
	now func() time.Time

	mu         sync.Mutex
	cached     map[string]cachedCount
	generation int // how often tasks were deleted
}

// cachedCount is how many tasks a filter chooses whose id is less than before.
type cachedCount struct {
	beforeID   string
	n          int
	expiry     time.Time // it is kept
	generation int
}

const (
	// minCachedAge is how old a task's id may be before its row is there: for as long as an acceptance takes, and by as much as the clocks
	// of processes differ.
	minCachedAge = time.Minute
	// countTTL is how long a count is kept.
	countTTL = time.Minute
	// minCachedCount is how many tasks there must be for their count to be kept, and maxCounts how many counts are.
	minCachedCount = 100
	maxCounts      = 256
)

// findCount returns what is kept under key, or reports false beside what is to be counted for it.
func (c *countCache) findCount(key string) (o cachedCount, ok bool) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if o, ok = c.cached[key]; ok && now.Before(o.expiry) {
		return o, true
	}
	return cachedCount{beforeID: firstTaskID(now.Add(-minCachedAge)), expiry: now.Add(countTTL), generation: c.generation}, false
}

func (c *countCache) saveCount(key string, o cachedCount) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case o.n < minCachedCount || o.generation != c.generation:
		return
	case c.cached == nil || len(c.cached) >= maxCounts:
		c.cached = map[string]cachedCount{}
	}
	c.cached[key] = o
}

// invalidate says that tasks were deleted.
func (c *countCache) invalidate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cached = nil
	c.generation++
}

// queryCount adds to b that the tasks t are counted which the conditions where choose, with their arguments. Where they are fixed, no
// task that is there comes to be chosen or ceases to be.
func (s *Store) queryCount(b *db.Batch, total *int, fixed bool, where []string, args []any) {
	from := ` FROM task t WHERE ` + strings.Join(where, " AND ")
	if !fixed {
		b.Query(func(r db.Row) error { return r.Scan(total) }, `SELECT COUNT(*)`+from, args...)
		return
	}
	key := fmt.Sprintf("%q", append(slices.Clip(args), where)) // quoted: callers choose some of it
	stored, ok := s.countCache.findCount(key)
	bounded := append(slices.Clip(args), stored.beforeID)
	// A sub-select keeps PostgreSQL from planning anew for each bound, and the limit from choosing a plan for many rows.
	bound := fmt.Sprintf("(SELECT CAST($%d AS TEXT))", len(bounded))
	if !ok {
		b.Query(func(r db.Row) error {
			err := r.Scan(total, &stored.n)
			if err == nil {
				s.countCache.saveCount(key, stored)
			}
			return err
		}, `SELECT COUNT(*), COUNT(CASE WHEN t.id < `+bound+` THEN 1 END)`+from, bounded...)
		return
	}
	from += ` AND t.id >= ` + bound
	b.Query(func(r db.Row) error {
		err := r.Scan(total)
		*total += stored.n
		return err
	}, fmt.Sprintf(`SELECT CASE WHEN n < %[2]d THEN n ELSE (SELECT COUNT(*)%[1]s) END
		FROM (SELECT COUNT(*) AS n FROM (SELECT 1%[1]s ORDER BY t.id DESC LIMIT %[2]d) AS few) AS young`, from, minCachedCount), bounded...)
}
