package task

import (
	"encoding/json"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// topicTask is the topic of signals about tasks. The key is tenant and task with a slash between them.
const topicTask = "task"

func (k topicKey) String() string { return string(k.tenant) + "/" + string(k.task) }

// tell tells the task's readers in other processes: of facts that there are some, of chunks what they are.
func (h *Hub) tell(key topicKey, evs []agentsvc.Event) {
	name := key.String()
	if slices.ContainsFunc(evs, func(ev agentsvc.Event) bool { return ev.Chunk == nil }) {
		h.bus.Tell(topicTask, name)
	}
	for _, ev := range evs {
		if ev.Chunk != nil {
			h.send(name, *ev.Chunk)
		}
	}
}

func (h *Hub) send(name string, c agentsvc.Chunk) {
	data, _ := json.Marshal(c) // text and numbers always marshal
	h.bus.Send(topicTask, name, string(data))
}

// joined shows a process that begins to follow a task what is being written here.
func (h *Hub) joined(name string) {
	tenant, task, _ := strings.Cut(name, "/")
	for _, d := range h.drafts(topicKey{db.ID(tenant), agentsvc.TaskID(task)}) {
		h.send(name, *d.chunk())
	}
}

// drafts are copies of those of a task that a run of this process writes.
func (h *Hub) drafts(key topicKey) drafts {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[key]
	if t == nil || t.writers == 0 {
		return nil
	}
	return slices.Clone(t.drafts)
}

// reach has the reader's process hear of the task from others as well, until its last reader has gone. It reports
// whether it did not before. Where a run of this process is at work there is nobody to hear from.
func (r *reader) reach() bool {
	h := r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[r.key]
	if t == nil || t.leave != nil || t.writers > 0 || !slices.Contains(t.readers, r) {
		return false
	}
	t.leave = h.bus.Follow(topicTask, r.key.String(), func(data string) { h.hear(r.key, data) })
	return true
}

// hear takes in what another process says of a task.
func (h *Hub) hear(key topicKey, data string) {
	if data != "" {
		var c agentsvc.Chunk
		if json.Unmarshal([]byte(data), &c) == nil {
			h.spread(key, []agentsvc.Event{{Task: key.task, Chunk: &c}})
		}
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[key]; t != nil {
		for _, r := range t.readers {
			r.told = true
			r.rouse()
		}
	}
}
