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

// Bounds of a topic's recent events, which all its subscriptions share. When one is exceeded the older half is dropped,
// and a reader who has not taken it continues from the log, where large facts are read under the reader's own memory
// reservation. So the memory of slow clients is bounded, does not grow with their number, and never delays the writer.
const (
	maxRecentEvents = 1024      // number of events
	maxRecentBytes  = 256 << 10 // sum of their ByteSize
)

// Bounds of what one reader takes of them at once. It keeps that for as long as its client does not read.
const (
	maxTakenEvents = 32      // number of events
	maxTakenBytes  = 4 << 10 // sum of their ByteSize; a larger event is taken alone
)

// Hub delivers what is added to the logs of tasks to their readers: to subscriptions in this process facts and
// chunks, to other processes a signal that there is something to read, and chunks where the bus carries data. It
// stores nothing that the log does not have, except the drafts of unfinished messages. One Hub serves all tenants of
// a process. It is safe for concurrent use.
type Hub struct {
	bus *signal.Bus
	// catchUpSlots is a semaphore for readers that read more than one page: half of the processors.
	catchUpSlots chan struct{}

	// mu guards the fields below. It is held briefly, and never while a topic's mu is taken, so that the readers of one
	// task do not delay those of others.
	mu          sync.Mutex
	topics      map[topicKey]*topic // of tasks with a subscription or a writer here
	readers     map[db.ID]int       // number of subscriptions by tenant
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

// topic is what the hub knows of one task.
type topic struct {
	// users is the number of subscriptions and writers: without any, the topic is dropped. Hub.mu guards it.
	users int

	// mu guards the fields below and those of the subscriptions.
	mu            sync.Mutex
	subscriptions []*subscription
	// caughtUp are the subscriptions that have taken all of recent: those that the next event wakes.
	caughtUp []*subscription
	recent   recentEvents
	writers  int // runs of this process that execute the task
	// calls are the tool calls in progress in those runs, with the functions that cancel them.
	calls    map[agentsvc.CallID]context.CancelCauseFunc
	drafts   drafts
	unfollow func() // ends what followRemote began; nil where it has not begun
}

// NewHub returns a hub without topics. bus connects it with other processes; nil = this process only.
func NewHub(bus *signal.Bus) *Hub {
	h := &Hub{bus: bus, catchUpSlots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), topics: map[topicKey]*topic{}, readers: map[db.ID]int{}}
	// A process that starts to follow a task gets the drafts of unfinished messages, as a local subscription does.
	bus.OnFollow(taskTopic, h.broadcastDrafts)
	return h
}

// subscription is one reader of a task.
type subscription struct {
	hub   *Hub
	key   topicKey
	topic *topic
	wake  chan struct{} // capacity 1: one pending signal covers all changes

	// Guarded by topic.mu:

	// drafts are what is left to take of the unfinished messages that were there when the reader came, and draftOffset
	// is how many bytes of the first were taken.
	drafts      drafts
	draftOffset int
	next        int64 // position in the topic's recent events of the next one to take
	isCaughtUp  bool  // it is in the topic's caughtUp
	// lagged reports that events were dropped before the reader took them. signaled reports that another process
	// signalled new facts.
	lagged   bool
	signaled bool
	err      error // ends the subscription; set when the tenant ends
}

// subscribe adds a reader who has the log up to sequence last. Its first events are the drafts of unfinished messages,
// so it sees them from their first byte.
func (h *Hub) subscribe(key topicKey, last int64) *subscription {
	r := &subscription{hub: h, key: key, topic: h.useTopic(key, 1), wake: make(chan struct{}, 1)}
	t := r.topic
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subscriptions = append(t.subscriptions, r)
	r.next = t.recent.end()
	for _, d := range t.drafts {
		if d.afterSeq >= last {
			r.drafts = append(r.drafts, d)
		}
	}
	t.noteCaughtUp(r)
	return r
}

// useTopic returns the topic of key, which it creates if it is missing, and counts a user of it: one of its readers
// (readers is 1) or a writer (0). dropTopic must follow with the same number.
func (h *Hub) useTopic(key topicKey, readers int) *topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[key]
	if t == nil {
		t = &topic{}
		h.topics[key] = t
	}
	t.users++
	h.readers[key.tenant] += readers
	return t
}

// dropTopic ends one use of a topic, and deletes the topic with the last one.
func (h *Hub) dropTopic(key topicKey, t *topic, readers int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.readers[key.tenant] -= readers; h.readers[key.tenant] == 0 {
		delete(h.readers, key.tenant)
	}
	if t.users--; t.users == 0 {
		delete(h.topics, key)
	}
}

// findTopic returns the topic of key, nil if there is none.
func (h *Hub) findTopic(key topicKey) *topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.topics[key]
}

// addWriter reports that a run of this process executes the task, until release is called.
func (h *Hub) addWriter(key topicKey) (release func()) {
	t := h.useTopic(key, 0)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writers++
	return func() {
		t.mu.Lock()
		t.writers--
		for _, r := range t.subscriptions {
			r.wakeUp() // they waited for localPollInterval; from now on they follow other processes
		}
		t.mu.Unlock()
		h.dropTopic(key, t, 0)
	}
}

// publishEvents delivers events, which are committed or chunks, to all readers of the task. It never blocks.
func (h *Hub) publishEvents(key topicKey, evs ...agentsvc.Event) {
	h.publishLocal(key, evs)
	if h.bus.HasFollowers() {
		h.broadcastEvents(key, evs)
	}
}

// publishLocal adds events to the recent ones of their task and wakes the readers of this process that have taken all
// before them. Its cost does not depend on the readers that are behind.
func (h *Hub) publishLocal(key topicKey, evs []agentsvc.Event) {
	t := h.findTopic(key)
	if t == nil {
		return
	}
	t.mu.Lock()
	t.drafts.applyEvents(evs)
	if len(t.subscriptions) > 0 {
		t.recent.addEvents(evs)
	}
	woken := t.caughtUp
	t.caughtUp = nil
	for _, r := range woken {
		r.isCaughtUp = false
	}
	t.mu.Unlock()
	for _, r := range woken {
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
		s.end(err)
	}
}

// EndTenant ends all subscriptions of a tenant's tasks with err. Later ones are ended by the function of
// [Hub.SetTenantCheck].
func (h *Hub) EndTenant(tenant db.ID, err error) {
	h.mu.Lock()
	var topics []*topic
	for key, t := range h.topics {
		if key.tenant == tenant {
			topics = append(topics, t)
		}
	}
	h.mu.Unlock()
	for _, t := range topics {
		t.mu.Lock()
		subscriptions := slices.Clone(t.subscriptions)
		t.mu.Unlock()
		for _, r := range subscriptions {
			r.end(err)
		}
	}
}

// end ends the subscription with err.
func (s *subscription) end(err error) {
	s.topic.mu.Lock()
	defer s.topic.mu.Unlock()
	s.err = err
	s.wakeUp()
}

// wakeUp signals the reader.
func (s *subscription) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// news is what takeNews returns.
type news struct {
	events         []agentsvc.Event // see takeEvents
	lagged         bool             // events were dropped: read the log
	signaled       bool             // another process has written: read the log
	hasLocalWriter bool             // a run of this process executes the task
	endErr         error            // nothing follows events
}

// takeNews returns the next events, and what else has changed since the last call.
func (s *subscription) takeNews() news {
	t := s.topic
	t.mu.Lock()
	defer t.mu.Unlock()
	evs := s.takeNext()
	n := news{evs, s.lagged, s.signaled, t.writers > 0, s.err}
	s.lagged, s.signaled = false, false
	return n
}

// takeEvents returns the next events, at most maxTakenEvents, with adjacent chunks joined; none when the reader has
// taken all. What else has changed it leaves to takeNews. s may be nil.
func (s *subscription) takeEvents() []agentsvc.Event {
	if s == nil {
		return nil
	}
	s.topic.mu.Lock()
	defer s.topic.mu.Unlock()
	return s.takeNext()
}

// takeNext is takeEvents for a caller that holds topic.mu.
func (s *subscription) takeNext() (evs []agentsvc.Event) {
	if len(s.drafts) > 0 {
		d := s.drafts[0]
		c := d.toChunk(s.draftOffset, maxTakenBytes)
		if s.draftOffset += len(c.Text); s.draftOffset == len(d.text) {
			s.drafts, s.draftOffset = s.drafts[1:], 0
		}
		evs = []agentsvc.Event{{Task: s.key.task, Chunk: c}}
	} else {
		var dropped bool
		evs, s.next, dropped = s.topic.recent.takeFrom(s.next)
		s.lagged = s.lagged || dropped
	}
	s.topic.noteCaughtUp(s)
	return evs
}

// noteCaughtUp adds s to the subscriptions that the next event wakes, if it has taken everything. The caller holds t.mu.
func (t *topic) noteCaughtUp(s *subscription) {
	if s.isCaughtUp || len(s.drafts) > 0 || s.next < t.recent.end() {
		return
	}
	s.isCaughtUp = true
	t.caughtUp = append(t.caughtUp, s)
	t.dropTaken()
}

// dropTaken drops the recent events once all subscriptions have taken them. The caller holds t.mu.
func (t *topic) dropTaken() {
	if len(t.caughtUp) == len(t.subscriptions) {
		t.recent.dropAll()
	}
}

// close removes the subscription. It may be called more than once.
func (s *subscription) close() {
	t := s.topic
	t.mu.Lock()
	i := slices.Index(t.subscriptions, s)
	if i >= 0 {
		t.subscriptions = slices.Delete(t.subscriptions, i, i+1)
		t.caughtUp = slices.DeleteFunc(t.caughtUp, func(r *subscription) bool { return r == s })
		t.dropTaken()
		if len(t.subscriptions) == 0 && t.unfollow != nil {
			t.unfollow()
			t.unfollow = nil
		}
	}
	t.mu.Unlock()
	if i >= 0 {
		s.hub.dropTopic(s.key, t, 1)
	}
}
