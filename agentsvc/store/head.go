package store

import (
	"context"
	"fmt"
	"sync"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// heads keeps tasks of a tenant as they were read, for whoever reads them again. Which tasks there are, and which version of
// each, only the database says: it is asked every time. But facts never change, so that a version which is kept need not be
// read again. Heads that nobody has asked for go first.
type heads struct {
	mu         sync.Mutex
	young, old map[headKey]*head
	weight     int // of young
}

// headKey is a task, and how much of it was read.
type headKey struct {
	id   agentsvc.TaskID
	with With
}

// head is a task at the sequence of its status, or where more than that was read, of its last event.
type head struct {
	version int64
	weight  int
	task    Stored
}

const (
	// maxHeads bounds what is kept of a tenant's tasks, in bytes, and maxHead what is kept of one.
	maxHeads = 256 << 10
	maxHead  = maxHeads / 8
	// headWeight is what a head takes beside the bodies of its events, and headFactor what these take as words and in the
	// shapes of dialects.
	headWeight = 512
	headFactor = 4
)

// keeps reports whether tasks that are read with w are kept. An open approval goes without a trace in the versions.
func (w With) keeps() bool { return !w.Approvals && !w.Bare }

// find returns what is kept of a task, whichever its version, nil where nothing is.
func (h *heads) find(id agentsvc.TaskID, with With) *head {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := headKey{id, with}
	if found := h.young[key]; found != nil {
		return found
	}
	found := h.old[key]
	if found != nil {
		h.put(key, found)
	}
	return found
}

// keep keeps t, which was read with the given parts at a version from bodies of so many bytes.
func (h *heads) keep(t Stored, with With, version int64, bytes int) Stored {
	t.Memo = new(Memo)
	n := &head{version, headWeight + headFactor*bytes, t}
	if n.weight > maxHead {
		return t
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.put(headKey{t.ID, with}, n)
	return t
}

// put makes n young. When the young ones are half of what may be kept they grow old, and the old ones go.
func (h *heads) put(key headKey, n *head) {
	if before := h.young[key]; before != nil {
		h.weight -= before.weight
	}
	if h.weight+n.weight > maxHeads/2 {
		h.young, h.old, h.weight = nil, h.young, 0
	}
	if h.young == nil {
		h.young = map[headKey]*head{}
	}
	h.young[key] = n
	h.weight += n.weight
}

// version is how a task stands: all that is to be read of one that is kept.
type version struct {
	id                       agentsvc.TaskID
	epoch, seq, turn, status int64
}

const versionColumns = `t.id, t.epoch, t.seq, t.turn, t.status_seq`

func (v *version) scan(r db.Row) error {
	return r.Scan((*string)(&v.id), &v.epoch, &v.seq, &v.turn, &v.status)
}

// of is what tells one state of a task from another, as far as it is read with w.
func (v version) of(w With) int64 {
	if w.History || w.Artifacts {
		return v.seq
	}
	return v.status
}

// at returns the task that h holds as it stands at v.
func (h *head) at(v version) Stored {
	now := h.task
	now.Epoch, now.Seq, now.Turn = v.epoch, v.seq, v.turn
	return now
}

// maxMissing bounds how many tasks of a page are read one by one.
const maxMissing = 4

// upTo returns the tasks of a page at the versions that are known of them: those that are kept, and the few others that
// have to be read. It reports false where too many are missing, or one has moved on meanwhile.
func (s *Store) upTo(ctx context.Context, page []version) (tasks []Stored, ok bool, err error) {
	tasks = make([]Stored, len(page))
	var missing []int
	for i, v := range page {
		if found := s.heads.find(v.id, With{}); found != nil && found.version == v.status {
			tasks[i] = found.at(v)
			continue
		}
		if missing = append(missing, i); len(missing) > maxMissing {
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
			if err == nil && t.statusSeq == page[i].status && t.unread == 0 {
				tasks[i] = s.heads.keep(t.Stored, With{}, t.statusSeq, t.inline)
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

// Memo keeps what is worked out of a task at one version. It is nil where nobody keeps the task.
type Memo struct {
	mu   sync.Mutex
	made map[string][]byte
}

// Get returns what is kept under name, at first what make makes of the task. Nobody may change it.
func (m *Memo) Get(name string, work func() ([]byte, error)) ([]byte, error) {
	if m == nil {
		return work()
	}
	m.mu.Lock()
	made, ok := m.made[name]
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
	if m.made == nil {
		m.made = map[string][]byte{}
	}
	m.made[name] = made
	return made, nil
}

// Equal is true: of two tasks, memos say nothing.
func (m *Memo) Equal(*Memo) bool { return true }
