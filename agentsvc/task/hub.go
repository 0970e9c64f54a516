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
	maxQueuedEvents = 1024      // events
	maxQueuedBytes  = 256 << 10 // of them
)

// Hub tells the readers of a task what is added to its log: those of this process facts and live chunks alike, those of
// other processes that there is something to read, and chunks where they can be carried. It holds no truth: whoever
// misses something reads the log. One hub serves all tenants of a process.
type Hub struct {
	bus          *signal.Bus
	catchUpSlots chan struct{} // holds one for each reader who reads on in a log that he is far behind

	mu          sync.Mutex
	topics      map[topicKey]*topic
	tenantCheck TenantCheck // nil = tenants never end
}

// TenantCheck returns why a tenant no longer answers, nil where it does. It is called for each new reader, and is to wait
// for nothing as a rule.
type TenantCheck func(ctx context.Context, tenant db.ID) error

// SetTenantCheck has readers who begin to listen after [Hub.EndTenant] end as well, because ended tells of it: from when End is
// called until the tenant answers again.
func (h *Hub) SetTenantCheck(ended TenantCheck) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tenantCheck = ended
}

type topicKey struct {
	tenant db.ID
	task   agentsvc.TaskID
}

type topic struct {
	subscriptions []*subscription
	writers       int // runs of this process at work on the task
	calls         map[agentsvc.CallID]context.CancelCauseFunc
	drafts        drafts
	unfollow      func() // ends what reach began; nil where it has not
}

// NewHub returns a hub without topics that reaches other processes by bus, which may be nil.
func NewHub(bus *signal.Bus) *Hub {
	h := &Hub{bus: bus, catchUpSlots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), topics: map[topicKey]*topic{}}
	bus.OnFollow(taskTopic, h.broadcastDrafts)
	return h
}

// subscription is one subscription.
type subscription struct {
	hub  *Hub
	key  topicKey
	wake chan struct{}

	// Under hub.mu:
	queue    []agentsvc.Event
	bytes    int64 // of the queue
	lagged   bool
	signaled bool  // by another process
	err      error // why there is nothing more to come
}

// subscribe begins to listen for a reader who knows the log up to sequence last. It begins with the messages that are
// being written, from their start.
func (h *Hub) subscribe(key topicKey, last int64) *subscription {
	r := &subscription{hub: h, key: key, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.ensureTopic(key)
	t.subscriptions = append(t.subscriptions, r)
	for _, d := range t.drafts {
		if d.afterSeq >= last {
			r.queue = append(r.queue, agentsvc.Event{Task: key.task, Chunk: d.toChunk()})
			r.bytes += int64(len(d.text))
		}
	}
	return r
}

// ensureTopic returns the topic of key, new if need be. h.mu is held.
func (h *Hub) ensureTopic(key topicKey) *topic {
	t := h.topics[key]
	if t == nil {
		t = &topic{}
		h.topics[key] = t
	}
	return t
}

// dropUnusedTopic forgets the topic if nobody is left. h.mu is held.
func (h *Hub) dropUnusedTopic(key topicKey, t *topic) {
	if len(t.subscriptions) == 0 && t.unfollow != nil {
		t.unfollow()
		t.unfollow = nil
	}
	if len(t.subscriptions) == 0 && t.writers == 0 {
		delete(h.topics, key)
	}
}

// addWriter says that a run of this process works on the task, until release.
func (h *Hub) addWriter(key topicKey) (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.ensureTopic(key)
	t.writers++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		t.writers--
		for _, r := range t.subscriptions {
			r.wakeUp() // they looked at nothing while the run was here
		}
		h.dropUnusedTopic(key, t)
	}
}

// publishEvents tells the task's readers, here and elsewhere, what a process has added.
func (h *Hub) publishEvents(key topicKey, evs ...agentsvc.Event) {
	h.publishLocal(key, evs)
	if h.bus.HasFollowers() {
		h.broadcastEvents(key, evs)
	}
}

// publishLocal tells the readers of this process.
func (h *Hub) publishLocal(key topicKey, evs []agentsvc.Event) {
	var bytes int64
	for _, ev := range evs {
		bytes += ev.ByteSize()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[key]
	if t == nil {
		return
	}
	t.drafts.applyEvents(evs)
	for _, r := range t.subscriptions {
		if len(r.queue)+len(evs) > maxQueuedEvents || r.bytes+bytes > maxQueuedBytes {
			r.queue, r.bytes, r.lagged = nil, 0, true
		} else {
			r.queue = append(r.queue, evs...)
			r.bytes += bytes
		}
		r.wakeUp()
	}
}

// endIfTenantEnded ends r if its tenant no longer answers. It is called once r listens: what comes later calls [Hub.EndTenant].
func (r *subscription) endIfTenantEnded(ctx context.Context) {
	r.hub.mu.Lock()
	ended := r.hub.tenantCheck
	r.hub.mu.Unlock()
	if ended == nil {
		return
	}
	if err := ended(ctx, r.key.tenant); err != nil {
		r.hub.mu.Lock()
		defer r.hub.mu.Unlock()
		r.err = err
		r.wakeUp()
	}
}

// EndTenant has the readers of a tenant's tasks end with err: the tenant no longer answers. Those who come later are ended by what
// [Hub.SetTenantCheck] was given, which must know of it by now.
func (h *Hub) EndTenant(tenant db.ID, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, t := range h.topics {
		if key.tenant != tenant {
			continue
		}
		for _, r := range t.subscriptions {
			r.err = err
			r.wakeUp()
		}
	}
}

func (r *subscription) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// queuedNews is what a reader has not taken yet.
type queuedNews struct {
	events         []agentsvc.Event
	lagged         bool  // events were dropped
	signaled       bool  // by another process, that there is something to read
	hasLocalWriter bool  // a run of this process writes
	endErr         error // nothing comes after evs
}

// drainQueue empties the reader's queue.
func (r *subscription) drainQueue() queuedNews {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	t := r.hub.topics[r.key]
	n := queuedNews{r.queue, r.lagged, r.signaled, t != nil && t.writers > 0, r.err}
	r.queue, r.bytes, r.lagged, r.signaled = nil, 0, false, false
	return n
}

// drainEvents empties the reader's queue and leaves the rest of the news. Without a reader there is none.
func (r *subscription) drainEvents() []agentsvc.Event {
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
func (r *subscription) close() {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	t := r.hub.topics[r.key]
	if t == nil {
		return
	}
	if i := slices.Index(t.subscriptions, r); i >= 0 {
		t.subscriptions = slices.Delete(t.subscriptions, i, i+1)
		r.hub.dropUnusedTopic(r.key, t)
	}
}
