package task

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/callcancel"
	"stoa/tenancy/db"
)

// Canceller cancels the tasks of one tenant and their tool calls.
type Canceller struct {
	reader   *Reader
	store    *store.Store
	tenant   db.ID
	hub      *Hub
	executor Executor
	sessions *sessionQueues
	// releaseTokens is [Options].ReleaseTokens.
	releaseTokens func(t agentsvc.Task, note string)
	log           *slog.Logger
}

// Cancel ends a task as cancelled and returns it. The write raises the task's epoch, so the worker that executes it,
// in whichever process, can write nothing more; then its run is stopped. It returns [agentsvc.ErrNotFound] for a task
// that is not visible and [agentsvc.ErrTaskEnded] for one that has ended.
func (c *Canceller) Cancel(ctx context.Context, visibility Visibility, id agentsvc.TaskID) (agentsvc.Task, error) {
	t, err := c.cancelTask(ctx, visibility, id, "")
	if err == nil {
		c.sessions.promoteNext(ctx, t.Owner, t.Context)
	}
	return t, err
}

// cancelTask is Cancel without promoting the session's next run; why, if not empty, becomes the status message.
func (c *Canceller) cancelTask(ctx context.Context, visibility Visibility, id agentsvc.TaskID, why string) (agentsvc.Task, error) {
	status := agentsvc.Status{State: agentsvc.Cancelled}
	if why != "" {
		status = newStatus(id, agentsvc.Cancelled, []string{why})
	}
	for {
		t, err := c.reader.findTask(ctx, visibility, id, store.TaskParts{History: true, Artifacts: true})
		if err != nil {
			return agentsvc.Task{}, err
		}
		if t.Status.State.IsTerminal() {
			return agentsvc.Task{}, agentsvc.ErrTaskEnded
		}
		ev := stampEvent(id, t.Seq+1, agentsvc.Event{Status: &status})
		switch err := c.store.Tasks.Cancel(ctx, t, ev); {
		case err == nil:
			c.executor.StopRun(c.tenant, id)
			c.hub.publishEvents(topicKey{c.tenant, id}, ev)
			c.releaseTurn(ctx, t)
			t.ApplyEvent(ev)
			return t.Task, nil
		case !errors.Is(err, agentsvc.ErrTaskChanged) || ctx.Err() != nil:
			return agentsvc.Task{}, err
		}
		// The task changed between the read and the write: read again.
	}
}

// cancelSession cancels the unfinished tasks of sub's session, the last one first, so that no waiting run is promoted
// meanwhile.
func (c *Canceller) cancelSession(ctx context.Context, sub Submission) error {
	ids, err := c.store.Runs.ListQueuedTasks(ctx, sub.Owner, sub.Message.Context)
	for _, id := range ids {
		_, one := c.cancelTask(ctx, Visibility{Owner: &sub.Owner, Memory: sub.Memory}, id, interruptedReason)
		if errors.Is(one, agentsvc.ErrTaskEnded) {
			sleepContext(ctx, retryPause) // the task has ended; its run will in a moment
			continue
		}
		err = errors.Join(err, one)
	}
	return err
}

// releaseTurn releases what the cancelled turn had reserved from the tenant's limits, unless a model call was
// recorded: then the run's usage report has settled it. A paused task has no reservation left. On failure the
// reservation expires with its window.
func (c *Canceller) releaseTurn(ctx context.Context, t store.StoredTask) {
	if c.releaseTokens == nil || t.Status.State.IsInterrupted() {
		return
	}
	note, err := c.store.Runs.LoadLimitReservation(ctx, t.ID, t.Turn)
	if err != nil {
		c.log.WarnContext(ctx, "the reservation of a cancelled turn is not released before its window ends", "task", t.ID, "error", err)
	}
	if note != "" {
		c.releaseTokens(t.Task, note)
	}
}

// callCancelTimeout bounds how long CancelCall waits for the process that executes the call.
const callCancelTimeout = 5 * time.Second

// CancelCall cancels one tool call in progress, in whichever process it executes; the agent continues with a result
// that reports the cancellation. nil means that the call has ended, or that its process will end it: the request is
// stored. It returns [agentsvc.ErrNotFound] for a task that is not visible and for a call that is not in progress.
func (c *Canceller) CancelCall(ctx context.Context, visibility Visibility, id agentsvc.TaskID, call agentsvc.CallID, reason string) error {
	t, err := c.reader.findTask(ctx, visibility, id, store.TaskParts{Approvals: true})
	if err != nil || c.hub.StopCall(c.tenant, id, call, reason) {
		return err
	}
	evs, err := c.store.Runs.LoadJournal(ctx, visibility.Memory, id, t.FirstSeq)
	if err != nil {
		return err
	}
	if t.Status.State != agentsvc.Working || !hasOpenCall(evs, call) {
		return agentsvc.ErrNotFound
	}
	callCancel := callcancel.Request{Task: id, Turn: t.Turn, Call: call, Reason: reason}
	if err := c.store.CallCancels.Request(ctx, callCancel); errors.Is(err, agentsvc.ErrTaskChanged) {
		return agentsvc.ErrNotFound
	} else if err != nil {
		return err
	}
	c.executor.NotifyRunChanged(c.tenant, id)
	return c.waitForCallEnd(ctx, visibility.Memory, callCancel, evs[len(evs)-1].Seq)
}

// hasOpenCall reports whether the facts contain the tool call without its result.
func hasOpenCall(evs []agentsvc.Event, call agentsvc.CallID) (open bool) {
	for _, ev := range evs {
		switch {
		case ev.Message != nil && slices.ContainsFunc(ev.Message.ToolCalls, func(tc agentsvc.ToolCall) bool { return tc.ID == call }):
			open = true
		case ev.Result != nil && ev.Result.Call == call:
			open = false
		}
	}
	return open
}

// waitForCallEnd waits until the call has a result or the task stops working, and returns nil if the call was
// cancelled by request, or [agentsvc.ErrNotFound] if it ended by itself.
func (c *Canceller) waitForCallEnd(ctx context.Context, memory *capacity.MemoryReservation, callCancel callcancel.Request, after int64) error {
	waiting, cancel := context.WithTimeout(ctx, callCancelTimeout)
	defer cancel()
	for ev, err := range c.reader.logs.follow(waiting, memory, callCancel.Task, after) {
		switch {
		case err != nil && waiting.Err() != nil:
			return ctx.Err() // nil after callCancelTimeout: the request stays stored
		case err != nil:
			return err
		case ev.Result != nil && ev.Result.Call == callCancel.Call, ev.Status != nil && ev.Status.State != agentsvc.Working:
			received, err := c.store.CallCancels.IsCancelled(ctx, callCancel)
			if err == nil && !received {
				err = agentsvc.ErrNotFound
			}
			return err
		}
	}
	return agentsvc.ErrNotFound
}

// registerCall adds a tool call of a run of this process until over is called.
func (h *Hub) registerCall(key topicKey, call agentsvc.CallID, stop context.CancelCauseFunc) (over func()) {
	t := h.useTopic(key, 0)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls == nil {
		t.calls = map[agentsvc.CallID]context.CancelCauseFunc{}
	}
	t.calls[call] = stop
	return func() {
		t.mu.Lock()
		delete(t.calls, call)
		t.mu.Unlock()
		h.dropTopic(key, t, 0)
	}
}

// HasCall reports whether the tool call is in progress in this process.
func (h *Hub) HasCall(tenant db.ID, task agentsvc.TaskID, call agentsvc.CallID) bool {
	return h.findCall(tenant, task, call) != nil
}

// StopCall cancels a tool call in this process with an [agentsvc.CallCancelledError] and reports whether it was in
// progress here.
func (h *Hub) StopCall(tenant db.ID, task agentsvc.TaskID, call agentsvc.CallID, reason string) bool {
	stop := h.findCall(tenant, task, call)
	if stop == nil {
		return false
	}
	stop(&agentsvc.CallCancelledError{Reason: reason})
	return true
}

// findCall returns the function that cancels a tool call in progress in this process, nil if there is no such call.
func (h *Hub) findCall(tenant db.ID, task agentsvc.TaskID, call agentsvc.CallID) context.CancelCauseFunc {
	t := h.findTopic(topicKey{tenant, task})
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.calls[call]
}
