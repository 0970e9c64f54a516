package store

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"stoa/tenancy/db"
)

// countCache keeps how many of a tenant's older tasks a filter selects, because counting them costs far more than
// reading a page. Younger tasks are counted at each request. An entry is dropped when it is countTTL old or when this
// process deletes tasks; tasks that another process deletes are counted until then.
type countCache struct {
	now func() time.Time // replaced by tests

	// mu guards the fields below.
	mu         sync.Mutex
	cached     map[string]cachedCount
	generation int // how often this process deleted tasks; not the generation of an app
}

// cachedCount is the number of selected tasks whose id is less than beforeID.
type cachedCount struct {
	beforeID string
	n        int
	expiry   time.Time // of this entry
	// generation is that of the cache when the count began: a count during which tasks were deleted is not stored.
	generation int // number of invalidations
}

const (
	// minCachedAge is the age of a task's id from which its row is assumed to be committed: longer than accepting a
	// message takes plus the difference of the processes' clocks, since ids contain the time.
	minCachedAge = time.Minute
	// countTTL is how long an entry is used.
	countTTL = time.Minute
	// minCachedCount is the smallest count worth an entry, and maxCounts the number of entries at which all are
	// dropped.
	minCachedCount = 100
	maxCounts      = 256
)

// findCount returns the entry of key, or, with ok false, the bounds for a new count of it.
func (c *countCache) findCount(key string) (o cachedCount, ok bool) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if o, ok = c.cached[key]; ok && now.Before(o.expiry) {
		return o, true
	}
	return cachedCount{beforeID: firstTaskID(now.Add(-minCachedAge)), expiry: now.Add(countTTL), generation: c.generation}, false
}

// saveCount stores a count, unless it is small or tasks were deleted since it began.
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

// invalidate drops all entries: tasks were deleted.
func (c *countCache) invalidate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cached = nil
	c.generation++
}

// queryCount adds to b the count of the tasks that the conditions where select. fixed reports that no existing task
// can begin or cease to fulfil them; only then is the cache used. The state and the status time change, agent, owner
// and context do not.
func (tas *Tasks) queryCount(b *db.Batch, total *int, fixed bool, where []string, args []any) {
	from := ` FROM task t WHERE ` + strings.Join(where, " AND ")
	if !fixed {
		b.Query(func(r db.Row) error { return r.Scan(total) }, `SELECT COUNT(*)`+from, args...)
		return
	}
	key := fmt.Sprintf("%q", append(slices.Clip(args), where)) // quoted: callers choose some of the arguments
	stored, ok := tas.counts.findCount(key)
	bounded := append(slices.Clip(args), stored.beforeID)
	// The sub-select keeps PostgreSQL from planning anew for each bound; the LIMIT keeps it from a plan for many
	// rows.
	bound := fmt.Sprintf("(SELECT CAST($%d AS TEXT))", len(bounded))
	if !ok {
		b.Query(func(r db.Row) error {
			err := r.Scan(total, &stored.n)
			if err == nil {
				tas.counts.saveCount(key, stored)
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
