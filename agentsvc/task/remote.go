package task

import (
	"encoding/json"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// taskTopic is the topic of signals about tasks. The key is tenant and task with a slash between them.
const taskTopic = "task"

func (k topicKey) String() string { return string(k.tenant) + "/" + string(k.task) }

// broadcastEvents tells the task's readers in other processes: of facts that there are some, of chunks what they are.
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

func (h *Hub) broadcastChunk(name string, c agentsvc.Chunk) {
	data, _ := json.Marshal(c) // text and numbers always marshal
	h.bus.SendToFollowers(taskTopic, name, string(data))
}

// broadcastDrafts shows a process that begins to follow a task what is being written here.
func (h *Hub) broadcastDrafts(name string) {
	tenant, task, _ := strings.Cut(name, "/")
	for _, d := range h.copyDrafts(topicKey{db.ID(tenant), agentsvc.TaskID(task)}) {
		h.broadcastChunk(name, *d.toChunk())
	}
}

// copyDrafts are copies of those of a task that a run of this process writes.
func (h *Hub) copyDrafts(key topicKey) drafts {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[key]
	if t == nil || t.writers == 0 {
		return nil
	}
	return slices.Clone(t.drafts)
}

// followRemote has the reader's process hear of the task from others as well, until its last reader has gone. It reports
// whether it did not before. Where a run of this process is at work there is nobody to hear from.
func (r *subscription) followRemote() bool {
	h := r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[r.key]
	if t == nil || t.unfollow != nil || t.writers > 0 || !slices.Contains(t.subscriptions, r) {
		return false
	}
	t.unfollow = h.bus.FollowKey(taskTopic, r.key.String(), func(data string) { h.receiveRemote(r.key, data) })
	return true
}

// receiveRemote takes in what another process says of a task.
func (h *Hub) receiveRemote(key topicKey, data string) {
	if data != "" {
		var c agentsvc.Chunk
		if json.Unmarshal([]byte(data), &c) == nil {
			h.publishLocal(key, []agentsvc.Event{{Task: key.task, Chunk: &c}})
		}
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[key]; t != nil {
		for _, r := range t.subscriptions {
			r.signaled = true
			r.wakeUp()
		}
	}
}
