package task

import (
	"context"
	"strings"
	"sync"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// maxQueued bounds what a slow reader leaves lying: past it the reader is told to read the log.
const maxQueued = 1024

// Hub tells the readers of this process what its writers add to the logs, facts and live chunks alike. It holds no
// truth: whoever misses something reads the log. One hub serves all tenants of a process.
type Hub struct {
	mu     sync.Mutex
	topics map[topicKey]*topic
}

type topicKey struct {
	tenant db.ID
	task   agentsvc.TaskID
}

type topic struct {
	readers []*reader
	writers int // runs of this process at work on the task
	calls   map[agentsvc.CallID]context.CancelCauseFunc
}

// NewHub returns a hub without topics.
func NewHub() *Hub { return &Hub{topics: map[topicKey]*topic{}} }

// reader is one subscription.
type reader struct {
	hub  *Hub
	key  topicKey
	wake chan struct{}

	// Under hub.mu:
	queue  []agentsvc.Event
	lagged bool
	err    error // why there is nothing more to come
}

func (h *Hub) subscribe(key topicKey) *reader {
	r := &reader{hub: h, key: key, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topic(key)
	t.readers = append(t.readers, r)
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

// running says that a run of this process is in the middle of a tool call, until over. The task is held.
func (h *Hub) running(key topicKey, call agentsvc.CallID, stop context.CancelCauseFunc) (over func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topic(key)
	if t.calls == nil {
		t.calls = map[agentsvc.CallID]context.CancelCauseFunc{}
	}
	t.calls[call] = stop
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(t.calls, call)
	}
}

// stop ends a tool call of a run of this process. It reports whether there is one.
func (h *Hub) stop(key topicKey, call agentsvc.CallID, cause error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[key]
	if t == nil || t.calls[call] == nil {
		return false
	}
	t.calls[call](cause)
	return true
}

func (h *Hub) publish(key topicKey, evs ...agentsvc.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[key]
	if t == nil {
		return
	}
	for _, r := range t.readers {
		if len(r.queue)+len(evs) > maxQueued {
			r.queue, r.lagged = nil, true
		} else {
			r.queue = append(r.queue, evs...)
		}
		r.rouse()
	}
}

// End has the readers of a tenant's tasks end with err: the tenant no longer answers.
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

// take empties the reader's queue. lagged says that events were dropped; local that a run of this process writes. An
// error says that nothing comes after evs.
func (r *reader) take() (evs []agentsvc.Event, lagged, local bool, err error) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	evs, lagged = r.queue, r.lagged
	r.queue, r.lagged = nil, false
	t := r.hub.topics[r.key]
	return evs, lagged, t != nil && t.writers > 0, r.err
}

// close ends the subscription. It may be called again.
func (r *reader) close() {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	t := r.hub.topics[r.key]
	if t == nil {
		return
	}
	for i, other := range t.readers {
		if other == r {
			t.readers = append(t.readers[:i], t.readers[i+1:]...)
			r.hub.drop(r.key, t)
			return
		}
	}
}

// merge joins chunks that follow each other, so that a reader behind its writer catches up in one step.
func merge(evs []agentsvc.Event) []agentsvc.Event {
	out := evs[:0]
	for i := 0; i < len(evs); {
		c := evs[i].Chunk
		j := i + 1
		if c != nil {
			end := c.Offset + len(c.Text)
			for j < len(evs) && evs[j].Chunk != nil && evs[j].Chunk.Message == c.Message && evs[j].Chunk.Offset == end {
				end += len(evs[j].Chunk.Text)
				j++
			}
		}
		if j > i+1 {
			var text strings.Builder
			for _, ev := range evs[i:j] {
				text.WriteString(ev.Chunk.Text)
			}
			evs[i].Chunk = &agentsvc.Chunk{Message: c.Message, Offset: c.Offset, Text: text.String()}
		}
		out = append(out, evs[i])
		i = j
	}
	return out
}
