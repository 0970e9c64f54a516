package task

import (
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
)

// Cancel ends a task: whoever works on it loses its lease, and stops at once where that is this process. It returns
// [agentsvc.ErrTerminal] for a task that has ended.
func (s *Service) Cancel(ctx context.Context, reach Reach, id agentsvc.TaskID) (agentsvc.Task, error) {
	for {
		t, err := s.find(ctx, reach, id, store.With{History: true, Artifacts: true})
		if err != nil {
			return agentsvc.Task{}, err
		}
		if t.Status.State.Terminal() {
			return agentsvc.Task{}, agentsvc.ErrTerminal
		}
		ev := stamp(id, t.Seq+1, agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Cancelled}})
		switch err := s.store.Cancel(ctx, t, ev); {
		case err == nil:
			s.workers.Stop(s.tenant, id)
			s.hub.publish(s.key(id), ev)
			t.Apply(ev)
			return t.Task, nil
		case !isLost(err) || ctx.Err() != nil:
			return agentsvc.Task{}, err
		}
		// The task moved on between the look and the step; look again.
	}
}

// CancelCall ends one running tool call of a task; the agent goes on with a result that says so. It returns
// [agentsvc.ErrNotFound] for a task out of reach and for a call that does not run.
func (s *Service) CancelCall(ctx context.Context, reach Reach, id agentsvc.TaskID, call agentsvc.CallID, reason string) error {
	if _, err := s.find(ctx, reach, id, store.With{}); err != nil {
		return err
	}
	if !s.hub.stop(s.key(id), call, &agentsvc.CancelledError{Reason: reason}) {
		return agentsvc.ErrNotFound
	}
	return nil
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
