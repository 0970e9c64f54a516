package task

import (
	"encoding/json"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// taskTopic is the bus topic of tasks. A key is "tenant/task". A message without data means that there are new facts;
// one with data is a JSON chunk.
const taskTopic = "task"

// String returns the key on the bus. Neither ids of tenants nor of tasks contain a slash.
func (k topicKey) String() string { return string(k.tenant) + "/" + string(k.task) }

// broadcastEvents signals events to the task's readers in other processes: new facts by one signal, since these
// processes read the log; chunks with their text.
func (h *Hub) broadcastEvents(key topicKey, evs []agentsvc.Event) {
	name := key.String()
	if slices.ContainsFunc(evs, func(ev agentsvc.Event) bool { return ev.Chunk == nil }) {
		h.bus.NotifyFollowers(taskTopic, name)
	}
	for _, ev := range evs {
		if ev.Chunk != nil {
			h.broadcastChunk(name, *ev.Chunk)
		}
	}
}

// broadcastChunk sends a chunk to the followers of a task. The bus may drop it.
func (h *Hub) broadcastChunk(name string, c agentsvc.Chunk) {
	data, _ := json.Marshal(c) // cannot fail: text and numbers
	h.bus.SendToFollowers(taskTopic, name, string(data))
}

// broadcastDrafts sends the drafts of a task to a process that begins to follow it.
func (h *Hub) broadcastDrafts(name string) {
	tenant, task, _ := strings.Cut(name, "/")
	for _, d := range h.copyDrafts(topicKey{db.ID(tenant), agentsvc.TaskID(task)}) {
		h.broadcastChunk(name, *d.toChunk(0, maxDraftBytes))
	}
}

// copyDrafts returns a copy of the task's drafts if a run of this process writes them.
func (h *Hub) copyDrafts(key topicKey) drafts {
	t := h.findTopic(key)
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.writers == 0 {
		return nil
	}
	return slices.Clone(t.drafts)
}

// followRemote makes this process follow the task in other processes until its last subscription closes. It reports
// whether it was not followed before. It does nothing while a run of this process executes the task: no other process
// writes then.
func (s *subscription) followRemote() bool {
	h, t := s.hub, s.topic
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unfollow != nil || t.writers > 0 || !slices.Contains(t.subscriptions, s) {
		return false
	}
	t.unfollow = h.bus.FollowKey(taskTopic, s.key.String(), func(data string) { h.receiveRemote(s.key, data) })
	return true
}

// receiveRemote handles a message of another process: a chunk is delivered, a signal wakes the readers to read the
// log.
func (h *Hub) receiveRemote(key topicKey, data string) {
	if data != "" {
		var c agentsvc.Chunk
		if json.Unmarshal([]byte(data), &c) == nil {
			h.publishLocal(key, []agentsvc.Event{{Task: key.task, Chunk: &c}})
		}
		return
	}
	t := h.findTopic(key)
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.subscriptions {
		r.signaled = true
		r.wakeUp()
	}
}
