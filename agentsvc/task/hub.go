package task

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"stoa/agentsvc"
	"stoa/tenancy/db"
	"stoa/tenancy/signal"
)

// Bounds of what a slow reader leaves lying: past them the reader is told to read the log. Facts that are large are read there in any
// case, by readers who have memory for them.
const (
	maxQueued      = 1024      // events
	maxQueuedBytes = 256 << 10 // of them
)

// Hub tells the readers of a task what is added to its log: those of this process facts and live chunks alike, those of
// other processes that there is something to read, and chunks where they can be carried. It holds no truth: whoever
// misses something reads the log. One hub serves all tenants of a process.
type Hub struct {
	bus     *signal.Bus
	catchUp chan struct{} // holds one for each reader who reads on in a log that he is far behind

	mu     sync.Mutex
	topics map[topicKey]*topic
	ended  TenantEnded // nil = tenants never end
}

// TenantEnded returns why a tenant no longer answers, nil where it does. It is called for each new reader, and is to wait
// for nothing as a rule.
type TenantEnded func(ctx context.Context, tenant db.ID) error

// CheckTenants has readers who begin to listen after [Hub.End] end as well, because ended tells of it: from when End is
// called until the tenant answers again.
func (h *Hub) CheckTenants(ended TenantEnded) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = ended
}

type topicKey struct {
	tenant db.ID
	task   agentsvc.TaskID
}

type topic struct {
	readers []*reader
	writers int // runs of this process at work on the task
	calls   map[agentsvc.CallID]context.CancelCauseFunc
	drafts  drafts
	leave   func() // ends what reach began; nil where it has not
}

// NewHub returns a hub without topics that reaches other processes by bus, which may be nil.
func NewHub(bus *signal.Bus) *Hub {
	h := &Hub{bus: bus, catchUp: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), topics: map[topicKey]*topic{}}
	bus.Joined(topicTask, h.joined)
	return h
}

// reader is one subscription.
type reader struct {
	hub  *Hub
	key  topicKey
	wake chan struct{}

	// Under hub.mu:
	queue  []agentsvc.Event
	bytes  int64 // of the queue
	lagged bool
	told   bool  // by another process
	err    error // why there is nothing more to come
}

// subscribe begins to listen for a reader who knows the log up to sequence last. It begins with the messages that are
// being written, from their start.
func (h *Hub) subscribe(key topicKey, last int64) *reader {
	r := &reader{hub: h, key: key, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topic(key)
	t.readers = append(t.readers, r)
	for _, d := range t.drafts {
		if d.after >= last {
			r.queue = append(r.queue, agentsvc.Event{Task: key.task, Chunk: d.chunk()})
			r.bytes += int64(len(d.text))
		}
	}
	return r
}

// topic returns the topic of key, new if need be. h.mu is held.
func (h *Hub) topic(key topicKey) *topic {
	t := h.topics[key]
	if t == nil {
		t = &topic{}
		h.topics[key] = t
	}
	return t
}

// drop forgets the topic if nobody is left. h.mu is held.
func (h *Hub) drop(key topicKey, t *topic) {
	if len(t.readers) == 0 && t.leave != nil {
		t.leave()
		t.leave = nil
	}
	if len(t.readers) == 0 && t.writers == 0 {
		delete(h.topics, key)
	}
}

// hold says that a run of this process works on the task, until release.
func (h *Hub) hold(key topicKey) (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topic(key)
	t.writers++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		t.writers--
		for _, r := range t.readers {
			r.rouse() // they looked at nothing while the run was here
		}
		h.drop(key, t)
	}
}

// publish tells the task's readers, here and elsewhere, what a process has added.
func (h *Hub) publish(key topicKey, evs ...agentsvc.Event) {
	h.spread(key, evs)
	if h.bus.Followed() {
		h.tell(key, evs)
	}
}

// spread tells the readers of this process.
func (h *Hub) spread(key topicKey, evs []agentsvc.Event) {
	var bytes int64
	for _, ev := range evs {
		bytes += ev.Bytes()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[key]
	if t == nil {
		return
	}
	t.drafts.take(evs)
	for _, r := range t.readers {
		if len(r.queue)+len(evs) > maxQueued || r.bytes+bytes > maxQueuedBytes {
			r.queue, r.bytes, r.lagged = nil, 0, true
		} else {
			r.queue = append(r.queue, evs...)
			r.bytes += bytes
		}
		r.rouse()
	}
}

// endIfOver ends r if its tenant no longer answers. It is called once r listens: what comes later calls [Hub.End].
func (r *reader) endIfOver(ctx context.Context) {
	r.hub.mu.Lock()
	ended := r.hub.ended
	r.hub.mu.Unlock()
	if ended == nil {
		return
	}
	if err := ended(ctx, r.key.tenant); err != nil {
		r.hub.mu.Lock()
		defer r.hub.mu.Unlock()
		r.err = err
		r.rouse()
	}
}

// End has the readers of a tenant's tasks end with err: the tenant no longer answers. Those who come later are ended by what
// [Hub.CheckTenants] was given, which must know of it by now.
func (h *Hub) End(tenant db.ID, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, t := range h.topics {
		if key.tenant != tenant {
			continue
		}
		for _, r := range t.readers {
			r.err = err
			r.rouse()
		}
	}
}

func (r *reader) rouse() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// news is what a reader has not taken yet.
type news struct {
	evs    []agentsvc.Event
	lagged bool  // events were dropped
	told   bool  // by another process, that there is something to read
	local  bool  // a run of this process writes
	over   error // nothing comes after evs
}

// take empties the reader's queue.
func (r *reader) take() news {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	t := r.hub.topics[r.key]
	n := news{r.queue, r.lagged, r.told, t != nil && t.writers > 0, r.err}
	r.queue, r.bytes, r.lagged, r.told = nil, 0, false, false
	return n
}

// heard empties the reader's queue and leaves the rest of the news. Without a reader there is none.
func (r *reader) heard() []agentsvc.Event {
	if r == nil {
		return nil
	}
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	evs := r.queue
	r.queue, r.bytes = nil, 0
	return evs
}

// close ends the subscription. It may be called again.
func (r *reader) close() {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	t := r.hub.topics[r.key]
	if t == nil {
		return
	}
	if i := slices.Index(t.readers, r); i >= 0 {
		t.readers = slices.Delete(t.readers, i, i+1)
		r.hub.drop(r.key, t)
	}
}
