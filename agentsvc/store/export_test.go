package store

import "time"

// What the tests need to know of the inside.
var (
	FirstTaskID = firstTaskID
	TaskTables  = taskTables
)

// MaxCacheBytes bounds what [Store.CacheSize] tells of.
const MaxCacheBytes = maxCacheBytes

// CacheSize tells how many tasks are kept, and of which weight.
func (s *Store) CacheSize() (cachedTasks, weight int) {
	for _, part := range []map[taskCacheKey]*cachedTask{s.taskCache.recent, s.taskCache.previous} {
		for _, h := range part {
			cachedTasks, weight = cachedTasks+1, weight+h.size
		}
	}
	return cachedTasks, weight
}

// AdvanceCountClock has counts be as old as if that much more time had passed.
func (s *Store) AdvanceCountClock(d time.Duration) {
	s.countCache.now = func() time.Time { return time.Now().Add(d) }
}
