package store

import (
	"context"
	"fmt"
	"sync"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// taskCache keeps decoded tasks of a tenant. It never decides whether a task exists or which version is current: the
// database is asked at each read. But facts never change, so a cached version that is still current need not be read
// again. Entries are evicted in two generations: those not read since the last generation change go first.
type taskCache struct {
	// mu guards the fields below.
	mu               sync.Mutex
	recent, previous map[taskCacheKey]*cachedTask
	recentSize       int // sum of the sizes in recent
}

// taskCacheKey is a task and the parts that were read of it.
type taskCacheKey struct {
	id   agentsvc.TaskID
	with TaskParts
}

// cachedTask is a task at a version (taskRowVersion.versionFor). It is immutable.
type cachedTask struct {
	version int64
	size    int // estimated bytes in memory
	task    StoredTask
}

const (
	// maxCacheBytes bounds the cached tasks of a tenant, and maxCachedTaskBytes one of them.
	maxCacheBytes      = 256 << 10
	maxCachedTaskBytes = maxCacheBytes / 8
	// cachedTaskOverhead is the estimated size of an entry without its bodies. bodyExpansion is the estimated factor
	// between stored bodies and memory: decoded values plus the encoded forms in EncodedCache.
	cachedTaskOverhead = 512
	bodyExpansion      = 4
)

// isCacheable reports whether tasks that are read with w are cached. Those with approvals are not, because the
// versions do not cover the rows of open approvals; a read of the state only is cheaper than the check.
func (p TaskParts) isCacheable() bool { return !p.Approvals && !p.StateOnly }

// findTask returns the cached entry of a task, whatever its version, or nil. It moves the entry to the recent
// generation.
func (c *taskCache) findTask(id agentsvc.TaskID, with TaskParts) *cachedTask {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := taskCacheKey{id, with}
	if found := c.recent[key]; found != nil {
		return found
	}
	found := c.previous[key]
	if found != nil {
		c.insertEntry(key, found)
	}
	return found
}

// saveTask caches t, which was read with the given parts at a version from bodies of the given size, and returns it
// with its EncodedCache. A task that is too large is returned with one as well, which ends with the caller's use.
func (c *taskCache) saveTask(t StoredTask, with TaskParts, version int64, bytes int) StoredTask {
	t.EncodedCache = new(EncodedCache)
	n := &cachedTask{version, cachedTaskOverhead + bodyExpansion*bytes, t}
	if n.size > maxCachedTaskBytes {
		return t
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.insertEntry(taskCacheKey{t.ID, with}, n)
	return t
}

// insertEntry adds n to the recent generation. When that reaches half of the bound it becomes the previous one, and
// the previous one is dropped. The caller holds c.mu.
func (c *taskCache) insertEntry(key taskCacheKey, n *cachedTask) {
	if before := c.recent[key]; before != nil {
		c.recentSize -= before.size
	}
	if c.recentSize+n.size > maxCacheBytes/2 {
		c.recent, c.previous, c.recentSize = nil, c.recent, 0
	}
	if c.recent == nil {
		c.recent = map[taskCacheKey]*cachedTask{}
	}
	c.recent[key] = n
	c.recentSize += n.size
}

// taskRowVersion is a task's row without anything that is cached: all that is read of a task whose cached version is
// current.
type taskRowVersion struct {
	id                       agentsvc.TaskID
	epoch, seq, turn, status int64
}

// versionColumns are the columns that scanRow reads.
const versionColumns = `t.id, t.epoch, t.seq, t.turn, t.status_seq`

// scanRow reads versionColumns.
func (v *taskRowVersion) scanRow(r db.Row) error {
	return r.Scan((*string)(&v.id), &v.epoch, &v.seq, &v.turn, &v.status)
}

// versionFor returns the value that changes with the parts w of the task: the sequence of the last event if history
// or artifacts are included, else that of the status.
func (v taskRowVersion) versionFor(w TaskParts) int64 {
	if w.History || w.Artifacts {
		return v.seq
	}
	return v.status
}

// taskAt returns the cached task with the row values of v.
func (t *cachedTask) taskAt(v taskRowVersion) StoredTask {
	now := t.task
	now.Epoch, now.Seq, now.Turn = v.epoch, v.seq, v.turn
	return now
}

// maxCacheMisses is how many missing tasks of a page are read one by one; with more, one join reads the whole page.
const maxCacheMisses = 4

// loadListedTasks returns the tasks of a page at the versions that were just read, from the cache and with a few
// extra reads. ok is false where too many are missing, or one has changed meanwhile; the caller then reads the whole
// page.
func (tas *Tasks) loadListedTasks(ctx context.Context, page []taskRowVersion) (tasks []StoredTask, ok bool, err error) {
	tasks = make([]StoredTask, len(page))
	var missing []int
	for i, v := range page {
		if found := tas.cache.findTask(v.id, TaskParts{}); found != nil && found.version == v.status {
			tasks[i] = found.taskAt(v)
			continue
		}
		if missing = append(missing, i); len(missing) > maxCacheMisses {
			return nil, false, nil
		}
	}
	if len(missing) == 0 {
		return tasks, true, nil
	}
	var b db.Batch
	n := 0
	for _, i := range missing {
		b.Query(func(r db.Row) error {
			t, err := scanTask(r)
			if err == nil && t.statusSeq == page[i].status && t.unreadBytes == 0 {
				tasks[i] = tas.cache.saveTask(t.StoredTask, TaskParts{}, t.statusSeq, t.inlineBytes)
				n++
			}
			return err
		}, `SELECT `+taskColumns+taskFrom+` WHERE t.tenant = $1 AND t.id = $2`, tas.tenant, string(page[i].id))
	}
	if err := tas.h.Do(ctx, &b); err != nil {
		return nil, false, fmt.Errorf("read listed tasks: %w", err)
	}
	return tasks, n == len(missing), nil
}

// EncodedCache keeps encoded forms of a task at one version, for example its JSON in a protocol. A nil cache keeps
// nothing. It is safe for concurrent use.
type EncodedCache struct {
	mu      sync.Mutex
	encoded map[string][]byte // by name; guarded by mu
}

// GetOrEncode returns the form called name, from the cache or from work. The result is shared and must not be
// modified. Two concurrent callers may both call work; both results are equal.
func (c *EncodedCache) GetOrEncode(name string, work func() ([]byte, error)) ([]byte, error) {
	if c == nil {
		return work()
	}
	c.mu.Lock()
	made, ok := c.encoded[name]
	c.mu.Unlock()
	if ok {
		return made, nil
	}
	made, err := work()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.encoded == nil {
		c.encoded = map[string][]byte{}
	}
	c.encoded[name] = made
	return made, nil
}

// Equal is always true: it makes comparisons of tasks in tests ignore their caches.
func (c *EncodedCache) Equal(*EncodedCache) bool { return true }
