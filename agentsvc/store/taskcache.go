package store

import (
	"context"
	"fmt"
	"sync"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// taskCache keeps tasks of a tenant as they were read, for whoever reads them again. Which tasks there are, and which version of
// each, only the database says: it is asked every time. But facts never change, so that a version which is kept need not be
// read again. Heads that nobody has asked for go first.
type taskCache struct {
	mu               sync.Mutex
	recent, previous map[taskCacheKey]*cachedTask
	recentSize       int // of young
}

// taskCacheKey is a task, and how much of it was read.
type taskCacheKey struct {
	id   agentsvc.TaskID
	with TaskParts
}

// cachedTask is a task at the sequence of its status, or where more than that was read, of its last event.
type cachedTask struct {
	version int64
	size    int
	task    StoredTask
}

const (
	// maxCacheBytes bounds what is kept of a tenant's tasks, in bytes, and maxCachedTaskBytes what is kept of one.
	maxCacheBytes      = 256 << 10
	maxCachedTaskBytes = maxCacheBytes / 8
	// cachedTaskOverhead is what a head takes beside the bodies of its events, and bodyExpansion what these take as words and in the
	// shapes of dialects.
	cachedTaskOverhead = 512
	bodyExpansion      = 4
)

// isCacheable reports whether tasks that are read with w are kept. An open approval goes without a trace in the versions.
func (w TaskParts) isCacheable() bool { return !w.Approvals && !w.StateOnly }

// findTask returns what is kept of a task, whichever its version, nil where nothing is.
func (h *taskCache) findTask(id agentsvc.TaskID, with TaskParts) *cachedTask {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := taskCacheKey{id, with}
	if found := h.recent[key]; found != nil {
		return found
	}
	found := h.previous[key]
	if found != nil {
		h.insertEntry(key, found)
	}
	return found
}

// saveTask keeps t, which was read with the given parts at a version from bodies of so many bytes.
func (h *taskCache) saveTask(t StoredTask, with TaskParts, version int64, bytes int) StoredTask {
	t.EncodedCache = new(EncodedCache)
	n := &cachedTask{version, cachedTaskOverhead + bodyExpansion*bytes, t}
	if n.size > maxCachedTaskBytes {
		return t
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.insertEntry(taskCacheKey{t.ID, with}, n)
	return t
}

// insertEntry makes n young. When the young ones are half of what may be kept they grow old, and the old ones go.
func (h *taskCache) insertEntry(key taskCacheKey, n *cachedTask) {
	if before := h.recent[key]; before != nil {
		h.recentSize -= before.size
	}
	if h.recentSize+n.size > maxCacheBytes/2 {
		h.recent, h.previous, h.recentSize = nil, h.recent, 0
	}
	if h.recent == nil {
		h.recent = map[taskCacheKey]*cachedTask{}
	}
	h.recent[key] = n
	h.recentSize += n.size
}

// taskRowVersion is how a task stands: all that is to be read of one that is kept.
type taskRowVersion struct {
	id                       agentsvc.TaskID
	epoch, seq, turn, status int64
}

const versionColumns = `t.id, t.epoch, t.seq, t.turn, t.status_seq`

func (v *taskRowVersion) scanRow(r db.Row) error {
	return r.Scan((*string)(&v.id), &v.epoch, &v.seq, &v.turn, &v.status)
}

// versionFor is what tells one state of a task from another, as far as it is read with w.
func (v taskRowVersion) versionFor(w TaskParts) int64 {
	if w.History || w.Artifacts {
		return v.seq
	}
	return v.status
}

// taskAt returns the task that h holds as it stands at v.
func (h *cachedTask) taskAt(v taskRowVersion) StoredTask {
	now := h.task
	now.Epoch, now.Seq, now.Turn = v.epoch, v.seq, v.turn
	return now
}

// maxCacheMisses bounds how many tasks of a page are read one by one.
const maxCacheMisses = 4

// loadListedTasks returns the tasks of a page at the versions that are known of them: those that are kept, and the few others that
// have to be read. It reports false where too many are missing, or one has moved on meanwhile.
func (s *Store) loadListedTasks(ctx context.Context, page []taskRowVersion) (tasks []StoredTask, ok bool, err error) {
	tasks = make([]StoredTask, len(page))
	var missing []int
	for i, v := range page {
		if found := s.taskCache.findTask(v.id, TaskParts{}); found != nil && found.version == v.status {
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
				tasks[i] = s.taskCache.saveTask(t.StoredTask, TaskParts{}, t.statusSeq, t.inlineBytes)
				n++
			}
			return err
		}, `SELECT `+taskColumns+taskFrom+` WHERE t.tenant = $1 AND t.id = $2`, s.tenant, string(page[i].id))
	}
	if err := s.h.Do(ctx, &b); err != nil {
		return nil, false, fmt.Errorf("read listed tasks: %w", err)
	}
	return tasks, n == len(missing), nil
}

// EncodedCache keeps what is worked out of a task at one version. It is nil where nobody keeps the task.
type EncodedCache struct {
	mu      sync.Mutex
	encoded map[string][]byte
}

// GetOrEncode returns what is kept under name, at first what make makes of the task. Nobody may change it.
func (m *EncodedCache) GetOrEncode(name string, work func() ([]byte, error)) ([]byte, error) {
	if m == nil {
		return work()
	}
	m.mu.Lock()
	made, ok := m.encoded[name]
	m.mu.Unlock()
	if ok {
		return made, nil
	}
	made, err := work()
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.encoded == nil {
		m.encoded = map[string][]byte{}
	}
	m.encoded[name] = made
	return made, nil
}

// Equal is true: of two tasks, memos say nothing.
func (m *EncodedCache) Equal(*EncodedCache) bool { return true }
