package task

import (
	"context"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// Cancel ends a task: whoever works on it loses its lease and stops, in whichever process. It returns
// [agentsvc.ErrTerminal] for a task that has ended.
func (s *Service) Cancel(ctx context.Context, reach Reach, id agentsvc.TaskID) (agentsvc.Task, error) {
	t, err := s.cancel(ctx, reach, id, "")
	if err == nil {
		s.callUp(ctx, t.Owner, t.Context)
	}
	return t, err
}

// cancel ends a task with a sentence that says why, if there is one.
func (s *Service) cancel(ctx context.Context, reach Reach, id agentsvc.TaskID, why string) (agentsvc.Task, error) {
	status := agentsvc.Status{State: agentsvc.Cancelled}
	if why != "" {
		status = told(id, agentsvc.Cancelled, []string{why})
	}
	for {
		t, err := s.find(ctx, reach, id, store.With{History: true, Artifacts: true})
		if err != nil {
			return agentsvc.Task{}, err
		}
		if t.Status.State.Terminal() {
			return agentsvc.Task{}, agentsvc.ErrTerminal
		}
		ev := stamp(id, t.Seq+1, agentsvc.Event{Status: &status})
		switch err := s.store.Cancel(ctx, t, ev); {
		case err == nil:
			s.workers.Stop(s.tenant, id)
			s.hub.publish(s.key(id), ev)
			s.unhold(ctx, t)
			t.Apply(ev)
			return t.Task, nil
		case !isLost(err) || ctx.Err() != nil:
			return agentsvc.Task{}, err
		}
		// The task moved on between the look and the step; look again.
	}
}

// unhold gives back what the turn held that was under way when t was cancelled. What its models have used nevertheless its
// worker tells. Where it cannot be known the hold lapses with its window.
func (s *Service) unhold(ctx context.Context, t store.Stored) {
	if s.o.Unhold == nil || t.Status.State.Interrupted() {
		return
	}
	note, err := s.store.Held(ctx, t.ID, t.Turn)
	if err != nil {
		s.log.WarnContext(ctx, "what a cancelled turn holds of the limits is not given back before its window ends", "task", t.ID, "error", err)
	}
	if note != "" {
		s.o.Unhold(t.Task, note)
	}
}

// cancelPatience bounds how long a caller waits for another process to end a tool call.
const cancelPatience = 5 * time.Second

// CancelCall ends one running tool call of a task, in whichever process it runs; the agent goes on with a result that
// says so. When it returns nil the call has ended, or is certain to as soon as its process looks. It returns
// [agentsvc.ErrNotFound] for a task out of reach and for a call that does not run.
func (s *Service) CancelCall(ctx context.Context, reach Reach, id agentsvc.TaskID, call agentsvc.CallID, reason string) error {
	t, err := s.find(ctx, reach, id, store.With{Approvals: true})
	if err != nil || s.hub.StopCall(s.tenant, id, call, reason) {
		return err
	}
	evs, err := s.store.Journal(ctx, store.Run{Task: id, FirstSeq: t.FirstSeq})
	if err != nil {
		return err
	}
	if t.Status.State != agentsvc.Working || !unanswered(evs, call) {
		return agentsvc.ErrNotFound
	}
	wish := store.CallCancel{Task: id, Turn: t.Turn, Call: call, Reason: reason}
	if err := s.store.AskCancel(ctx, wish); isLost(err) {
		return agentsvc.ErrNotFound
	} else if err != nil {
		return err
	}
	s.workers.Mind(s.tenant, id)
	return s.cancelled(ctx, wish, evs[len(evs)-1].Seq)
}

// unanswered reports whether a turn holds a tool call without its result.
func unanswered(evs []agentsvc.Event, call agentsvc.CallID) (open bool) {
	for _, ev := range evs {
		switch {
		case ev.Message != nil && slices.ContainsFunc(ev.Message.ToolCalls, func(c agentsvc.ToolCall) bool { return c.ID == call }):
			open = true
		case ev.Result != nil && ev.Result.Call == call:
			open = false
		}
	}
	return open
}

// cancelled waits until a call that is to be cancelled has ended, or its turn, and finds out why.
func (s *Service) cancelled(ctx context.Context, wish store.CallCancel, after int64) error {
	waiting, cancel := context.WithTimeout(ctx, cancelPatience)
	defer cancel()
	for ev, err := range s.from(waiting, wish.Task, after) {
		switch {
		case err != nil && waiting.Err() != nil:
			return ctx.Err() // nil where patience has ended: the wish stays
		case err != nil:
			return err
		case ev.Result != nil && ev.Result.Call == wish.Call, ev.Status != nil && ev.Status.State != agentsvc.Working:
			taken, err := s.store.CancelTaken(ctx, wish)
			if err == nil && !taken {
				err = agentsvc.ErrNotFound
			}
			return err
		}
	}
	return agentsvc.ErrNotFound
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

// HasCall reports whether a run of this process is in the middle of a tool call.
func (h *Hub) HasCall(tenant db.ID, task agentsvc.TaskID, call agentsvc.CallID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[topicKey{tenant, task}]
	return t != nil && t.calls[call] != nil
}

// StopCall ends a tool call of a run of this process. It reports whether there is one.
func (h *Hub) StopCall(tenant db.ID, task agentsvc.TaskID, call agentsvc.CallID, reason string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[topicKey{tenant, task}]
	if t == nil || t.calls[call] == nil {
		return false
	}
	t.calls[call](&agentsvc.CancelledError{Reason: reason})
	return true
}
