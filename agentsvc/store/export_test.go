package store

import "time"

// Internals that the tests in package store_test need.
var (
	FirstTaskID = firstTaskID
	TaskTables  = taskTables
)

// MaxCacheBytes bounds [Store.CacheSize].
const MaxCacheBytes = maxCacheBytes

// MaxSearchedTasks bounds the tasks that one search looks at.
const MaxSearchedTasks = maxSearchedTasks

// CacheSize returns the number of cached tasks and their size.
func (s *Store) CacheSize() (cachedTasks, weight int) {
	for _, part := range []map[taskCacheKey]*cachedTask{s.Tasks.cache.recent, s.Tasks.cache.previous} {
		for _, h := range part {
			cachedTasks, weight = cachedTasks+1, weight+h.size
		}
	}
	return cachedTasks, weight
}

// AdvanceCountClock lets the cached counts age by d.
func (s *Store) AdvanceCountClock(d time.Duration) {
	s.Tasks.counts.now = func() time.Time { return time.Now().Add(d) }
}
