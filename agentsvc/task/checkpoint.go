package task

import (
	"context"
	"errors"
	"maps"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/trail"
)

// ErrNotRestorable says that a task did not break off, so that there is nothing to go on with.
var ErrNotRestorable = errors.New("only a task that failed or was cancelled can be restored")

// ListCheckpoints lists the points of a task's last turn that it can be restored to, oldest first. It returns
// [agentsvc.ErrNotFound] for a task out of reach.
func (s *Service) ListCheckpoints(ctx context.Context, visibility Visibility, id agentsvc.TaskID) ([]agentsvc.Event, error) {
	if _, err := s.findTask(ctx, visibility, id, store.TaskParts{}); err != nil {
		return nil, err
	}
	facts, err := s.loadLastTurn(ctx, id)
	return slices.DeleteFunc(facts, func(ev agentsvc.Event) bool { return ev.Checkpoint == nil }), err
}

// RestoreCheckpoint opens a new task that goes on where a task that failed or was cancelled stood at a checkpoint, given by its
// sequence: what the agent had said and done by then is neither asked nor done again. The new task belongs to the
// owner of the old one, which stays as it is, and waits for its turn in their session; it keeps hold, which may be nil.
// That by wanted it stands on the audit trail. It returns [agentsvc.ErrNotFound] for a task out of reach and for a checkpoint
// that its last turn does not have, and [ErrNotRestorable].
func (s *Service) RestoreCheckpoint(ctx context.Context, visibility Visibility, id agentsvc.TaskID, checkpoint int64, by agentsvc.Owner, reservation *Reservation) (agentsvc.Task, error) {
	t, err := s.findTask(ctx, visibility, id, store.TaskParts{})
	if err != nil {
		return agentsvc.Task{}, err
	}
	if state := t.Status.State; state != agentsvc.Failed && state != agentsvc.Cancelled {
		return agentsvc.Task{}, ErrNotRestorable
	}
	facts, err := s.loadLastTurn(ctx, id)
	if err != nil {
		return agentsvc.Task{}, err
	}
	at := slices.IndexFunc(facts, func(ev agentsvc.Event) bool { return ev.Seq == checkpoint && ev.Checkpoint != nil })
	if at < 0 {
		return agentsvc.Task{}, agentsvc.ErrNotFound
	}
	run := s.newTurnFactory().newRun(runRequest{priority: store.PriorityNormal, trace: trail.TraceParent(ctx)})
	s.newTurnFactory().setNewTask(&run, t.Agent, t.Owner, t.Context)
	run.MayWait = true
	if reservation != nil {
		run.Reservation = reservation.Note
	}
	evs := copyTurnFacts(run.Task, facts[:at+1], map[string]any{"task_id": string(id), "checkpoint": checkpoint})
	run.Seq = int64(len(evs))
	written, err := s.reserveQueueDepth(ctx)
	if err != nil {
		return agentsvc.Task{}, err
	}
	err = agentsvc.ErrSessionBusy
	for try := 0; try < maxQueueAttempts && errors.Is(err, agentsvc.ErrSessionBusy); try++ {
		err = s.store.RestoreTask(ctx, run, evs, newUserEntry(by, "checkpoint.restore", map[string]any{
			"task": string(id), "checkpoint": checkpoint, "agent": t.Agent, "restored_as": string(run.Task),
		}))
	}
	written(err == nil)
	if err != nil {
		return agentsvc.Task{}, err
	}
	if reservation != nil {
		reservation.Recorded = true
	}
	s.executor.NotifyQueued(run)
	restored := agentsvc.Task{ID: run.Task, Context: run.Context, Agent: run.Agent, Owner: run.Owner, Created: evs[0].At}
	for _, ev := range evs {
		restored.ApplyEvent(ev)
	}
	return restored, nil
}

// copyTurnFacts returns the facts of a turn as the beginning of task id, whose first message tells where it comes from. What
// was consumed stays with the task that consumed it.
func copyTurnFacts(id agentsvc.TaskID, facts []agentsvc.Event, from map[string]any) []agentsvc.Event {
	first := *openingMessage(facts[0])
	first.Metadata = maps.Clone(first.Metadata)
	if first.Metadata == nil {
		first.Metadata = map[string]any{}
	}
	first.Metadata["restored_from"] = from
	evs := []agentsvc.Event{{Status: &agentsvc.Status{State: agentsvc.Submitted, Message: &first}}}
	for _, ev := range facts[1:] {
		if ev.Status == nil && ev.Approval == nil && ev.Usage == nil {
			evs = append(evs, ev)
		}
	}
	for i, ev := range evs {
		evs[i] = stampEvent(id, int64(i)+1, ev)
	}
	return evs
}

// loadLastTurn reads the facts of a task's last turn.
func (s *Service) loadLastTurn(ctx context.Context, id agentsvc.TaskID) ([]agentsvc.Event, error) {
	var turn []agentsvc.Event
	for after := int64(0); ; {
		evs, full, err := s.store.LoadEventPage(ctx, id, after, pageEvents, pageBytes)
		if err != nil {
			return nil, err
		}
		for _, ev := range evs {
			if openingMessage(ev) != nil {
				turn = turn[:0]
			}
			turn = append(turn, ev)
			after = ev.Seq
		}
		if !full {
			return turn, nil
		}
	}
}

// openingMessage returns the user's message that opens a turn with ev, nil if ev opens none.
func openingMessage(ev agentsvc.Event) *agentsvc.Message {
	switch {
	case ev.Status != nil && ev.Status.State == agentsvc.Submitted:
		return ev.Status.Message
	case ev.Message != nil && ev.Frame == "" && ev.Message.Role == agentsvc.RoleUser:
		return ev.Message
	}
	return nil
}
