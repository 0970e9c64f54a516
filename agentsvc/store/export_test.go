package store

import "time"

// What the tests need to know of the inside.
var (
	FirstID    = firstID
	TaskTables = taskTables
)

// MaxHeads bounds what [Store.Heads] tells of.
const MaxHeads = maxHeads

// Heads tells how many tasks are kept, and of which weight.
func (s *Store) Heads() (heads, weight int) {
	for _, part := range []map[headKey]*head{s.heads.young, s.heads.old} {
		for _, h := range part {
			heads, weight = heads+1, weight+h.weight
		}
	}
	return heads, weight
}

// Later has counts be as old as if that much more time had passed.
func (s *Store) Later(d time.Duration) {
	s.counts.now = func() time.Time { return time.Now().Add(d) }
}
