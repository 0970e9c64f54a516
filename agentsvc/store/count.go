package store

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"stoa/tenancy/db"
)

// counts keeps how many of a tenant's older tasks filters choose: to count them costs far more than to read a page of them.
// Younger ones are counted every time. What is kept is counted anew when it is [countLife] old, and when this process has
// deleted tasks; those that somebody else deletes are counted until then.
type counts struct {
	now func() time.Time

	mu    sync.Mutex
	kept  map[string]older
	swept int // how often tasks were deleted
}

// older is how many tasks a filter chooses whose id is less than before.
type older struct {
	before string
	n      int
	until  time.Time // it is kept
	swept  int
}

const (
	// youth is how old a task's id may be before its row is there: for as long as an acceptance takes, and by as much as the clocks
	// of processes differ.
	youth = time.Minute
	// countLife is how long a count is kept.
	countLife = time.Minute
	// manyTasks is how many tasks there must be for their count to be kept, and maxCounts how many counts are.
	manyTasks = 100
	maxCounts = 256
)

// find returns what is kept under key, or reports false beside what is to be counted for it.
func (c *counts) find(key string) (o older, ok bool) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if o, ok = c.kept[key]; ok && now.Before(o.until) {
		return o, true
	}
	return older{before: firstID(now.Add(-youth)), until: now.Add(countLife), swept: c.swept}, false
}

func (c *counts) keep(key string, o older) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case o.n < manyTasks || o.swept != c.swept:
		return
	case c.kept == nil || len(c.kept) >= maxCounts:
		c.kept = map[string]older{}
	}
	c.kept[key] = o
}

// forget says that tasks were deleted.
func (c *counts) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = nil
	c.swept++
}

// count adds to b that the tasks t are counted which the conditions where choose, with their arguments. Where they are fixed, no
// task that is there comes to be chosen or ceases to be.
func (s *Store) count(b *db.Batch, total *int, fixed bool, where []string, args []any) {
	from := ` FROM task t WHERE ` + strings.Join(where, " AND ")
	if !fixed {
		b.Query(func(r db.Row) error { return r.Scan(total) }, `SELECT COUNT(*)`+from, args...)
		return
	}
	key := fmt.Sprintf("%q", append(slices.Clip(args), where)) // quoted: callers choose some of it
	kept, ok := s.counts.find(key)
	bounded := append(slices.Clip(args), kept.before)
	// A sub-select keeps PostgreSQL from planning anew for each bound, and the limit from choosing a plan for many rows.
	bound := fmt.Sprintf("(SELECT CAST($%d AS TEXT))", len(bounded))
	if !ok {
		b.Query(func(r db.Row) error {
			err := r.Scan(total, &kept.n)
			if err == nil {
				s.counts.keep(key, kept)
			}
			return err
		}, `SELECT COUNT(*), COUNT(CASE WHEN t.id < `+bound+` THEN 1 END)`+from, bounded...)
		return
	}
	from += ` AND t.id >= ` + bound
	b.Query(func(r db.Row) error {
		err := r.Scan(total)
		*total += kept.n
		return err
	}, fmt.Sprintf(`SELECT CASE WHEN n < %[2]d THEN n ELSE (SELECT COUNT(*)%[1]s) END
		FROM (SELECT COUNT(*) AS n FROM (SELECT 1%[1]s ORDER BY t.id DESC LIMIT %[2]d) AS few) AS young`, from, manyTasks), bounded...)
}
