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

// Bounds of one subscription's queue. When one is exceeded the queue is dropped and the reader continues from the
// log, where large facts are read under the reader's own memory reservation. So a slow client costs bounded memory
// and never delays the writer.
const (
	maxQueuedEvents = 1024      // number of events
	maxQueuedBytes  = 256 << 10 // sum of their ByteSize
)

// Hub delivers what is added to the logs of tasks to their readers: to subscriptions in this process facts and
// chunks, to other processes a signal that there is something to read, and chunks where the bus carries data. It
// stores nothing that the log does not have, except the drafts of unfinished messages. One Hub serves all tenants of
// a process. It is safe for concurrent use.
type Hub struct {
	bus *signal.Bus
	// catchUpSlots is a semaphore for readers that read more than one page: half of the processors.
	catchUpSlots chan struct{}

	// mu guards topics, everything below them, and tenantCheck.
	mu          sync.Mutex
	topics      map[topicKey]*topic // of tasks with a subscription or a writer here
	tenantCheck TenantCheck         // nil = tenants never end
}

// TenantCheck returns why a tenant's tasks cannot be followed (for example because it was deleted), nil where they
// can. It is called for each new reader and should not block.
type TenantCheck func(ctx context.Context, tenant db.ID) error

// SetTenantCheck sets the check for readers that subscribe after [Hub.EndTenant]. It must report the tenant as ended
// from before EndTenant is called until the tenant is active again; otherwise a reader could subscribe in between and
// never end.
func (h *Hub) SetTenantCheck(ended TenantCheck) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tenantCheck = ended
}

// topicKey identifies a task across tenants.
type topicKey struct {
	tenant db.ID
	task   agentsvc.TaskID
}

// topic is what the hub knows of one task. Hub.mu guards it.
type topic struct {
	subscriptions []*subscription
	writers       int // runs of this process that execute the task
	// calls are the tool calls in progress in those runs, with the functions that cancel them.
	calls    map[agentsvc.CallID]context.CancelCauseFunc
	drafts   drafts
	unfollow func() // ends what followRemote began; nil where it has not begun
}

// NewHub returns a hub without topics. bus connects it with other processes; nil = this process only.
func NewHub(bus *signal.Bus) *Hub {
	h := &Hub{bus: bus, catchUpSlots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), topics: map[topicKey]*topic{}}
	// A process that starts to follow a task gets the drafts of unfinished messages, as a local subscription does.
	bus.OnFollow(taskTopic, h.broadcastDrafts)
	return h
}

// subscription is one reader of a task.
type subscription struct {
	hub  *Hub
	key  topicKey
	wake chan struct{} // capacity 1: one pending signal covers all changes

	// Guarded by hub.mu:
	queue []agentsvc.Event
	bytes int64 // ByteSize of the queue
	// lagged reports that events were dropped because the queue was full. signaled reports that another process
	// signalled new facts.
	lagged   bool
	signaled bool
	err      error // ends the subscription; set when the tenant ends
}

// subscribe adds a reader who has the log up to sequence last. Its queue starts with the drafts of unfinished
// messages, so it sees them from their first byte.
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

// ensureTopic returns the topic of key and creates it if it is missing. The caller holds h.mu.
func (h *Hub) ensureTopic(key topicKey) *topic {
	t := h.topics[key]
	if t == nil {
		t = &topic{}
		h.topics[key] = t
	}
	return t
}

// dropUnusedTopic deletes the topic if it has neither subscriptions nor writers. The caller holds h.mu.
func (h *Hub) dropUnusedTopic(key topicKey, t *topic) {
	if len(t.subscriptions) == 0 && t.unfollow != nil {
		t.unfollow()
		t.unfollow = nil
	}
	if len(t.subscriptions) == 0 && t.writers == 0 {
		delete(h.topics, key)
	}
}

// addWriter reports that a run of this process executes the task, until release is called.
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
			r.wakeUp() // they waited for localPollInterval; from now on they follow other processes
		}
		h.dropUnusedTopic(key, t)
	}
}

// publishEvents delivers events, which are committed or chunks, to all readers of the task. It never blocks.
func (h *Hub) publishEvents(key topicKey, evs ...agentsvc.Event) {
	h.publishLocal(key, evs)
	if h.bus.HasFollowers() {
		h.broadcastEvents(key, evs)
	}
}

// publishLocal delivers events to the subscriptions of this process, or marks those whose queue is full as lagged.
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

// endIfTenantEnded ends r if its tenant has ended. It is called after subscribe: a tenant that ends later is handled
// by [Hub.EndTenant].
func (s *subscription) endIfTenantEnded(ctx context.Context) {
	s.hub.mu.Lock()
	ended := s.hub.tenantCheck
	s.hub.mu.Unlock()
	if ended == nil {
		return
	}
	if err := ended(ctx, s.key.tenant); err != nil {
		s.hub.mu.Lock()
		defer s.hub.mu.Unlock()
		s.err = err
		s.wakeUp()
	}
}

// EndTenant ends all subscriptions of a tenant's tasks with err. Later ones are ended by the function of
// [Hub.SetTenantCheck].
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

// wakeUp signals the reader. The caller holds hub.mu.
func (s *subscription) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// queuedNews is what drainQueue returns: everything that changed since the last drain.
type queuedNews struct {
	events         []agentsvc.Event
	lagged         bool  // events were dropped: read the log
	signaled       bool  // another process has written: read the log
	hasLocalWriter bool  // a run of this process executes the task
	endErr         error // nothing follows events
}

// drainQueue returns and clears the subscription's queue and flags.
func (s *subscription) drainQueue() queuedNews {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	t := s.hub.topics[s.key]
	n := queuedNews{s.queue, s.lagged, s.signaled, t != nil && t.writers > 0, s.err}
	s.queue, s.bytes, s.lagged, s.signaled = nil, 0, false, false
	return n
}

// drainEvents returns and clears the queued events but leaves the flags to drainQueue. s may be nil.
func (s *subscription) drainEvents() []agentsvc.Event {
	if s == nil {
		return nil
	}
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	evs := s.queue
	s.queue, s.bytes = nil, 0
	return evs
}

// close removes the subscription. It may be called more than once.
func (s *subscription) close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	t := s.hub.topics[s.key]
	if t == nil {
		return
	}
	if i := slices.Index(t.subscriptions, s); i >= 0 {
		t.subscriptions = slices.Delete(t.subscriptions, i, i+1)
		s.hub.dropUnusedTopic(s.key, t)
	}
}
