package task

import (
	"context"
	"maps"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/trail"
	"stoa/tenancy/audit"
)

// ErrNotRestorable reports that a task was neither failed nor cancelled, so there is nothing to restore.
var ErrNotRestorable = agentsvc.NewError(agentsvc.CodeState, "only a task that failed or was cancelled can be restored")

// ListCheckpoints returns the checkpoint events of a task's last turn, oldest first. It returns
// [agentsvc.ErrNotFound] for a task that is not visible.
func (s *Service) ListCheckpoints(ctx context.Context, visibility Visibility, id agentsvc.TaskID) ([]agentsvc.Event, error) {
	if _, err := s.findTask(ctx, visibility, id, store.TaskParts{}); err != nil {
		return nil, err
	}
	facts, err := s.loadLastTurn(ctx, id)
	return slices.DeleteFunc(facts, func(ev agentsvc.Event) bool { return ev.Checkpoint == nil }), err
}

// RestoreCheckpoint opens a new task that continues a failed or cancelled one from a checkpoint, given by its
// sequence. The turn's facts up to the checkpoint are copied into the new task's log, so its run replays them and
// calls neither model nor tool again for them. The new task belongs to the old one's owner and context and waits in
// their session's queue; the old task is unchanged. reservation, which may be nil, is stored with the run; by is
// named in the audit entry. It returns [agentsvc.ErrNotFound] for a task that is not visible and for a sequence that
// is no checkpoint of its last turn, and [ErrNotRestorable].
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
	acc, err := s.accept(ctx, &restoration{service: s, old: t.Task, facts: facts[:at+1], checkpoint: checkpoint, by: by, reservation: reservation}, false, true)
	if err != nil {
		return agentsvc.Task{}, err
	}
	if reservation != nil {
		reservation.Recorded = true
	}
	s.dispatchTurn(acc)
	return acc.task, nil
}

// restoration is the source of a task that is restored from a checkpoint.
type restoration struct {
	service     *Service
	old         agentsvc.Task
	facts       []agentsvc.Event // of the old task's last turn, up to the checkpoint
	checkpoint  int64
	by          agentsvc.Owner
	reservation *Reservation
}

// plan implements turnSource.
func (r *restoration) plan(ctx context.Context, where placement) (turnPlan, error) {
	o := opening{priority: store.PriorityNormal, trace: trail.TraceParent(ctx), reservation: r.reservation}
	turn := r.service.newTurnFactory().newTask(o, where, r.old.Agent, r.old.Owner, r.old.Context)
	setFirstEvents(&turn, copyTurnFacts(r.facts, map[string]any{"task_id": string(r.old.ID), "checkpoint": r.checkpoint}))
	turn.AuditEntries = []audit.Entry{newUserEntry(r.by, "checkpoint.restore", map[string]any{
		"task": string(r.old.ID), "checkpoint": r.checkpoint, "agent": r.old.Agent, "restored_as": string(turn.Task),
	})}
	return turnPlan{turn: turn}, nil
}

// resolveConflict implements turnSource: another run joined the session's queue at the same time.
func (r *restoration) resolveConflict(_ context.Context, where placement, _ error) (placement, error) {
	return where, nil
}

// copyTurnFacts returns the facts of a turn as the beginning of another task. The first message's metadata names its
// origin (restored_from). Status events, approvals and usage are left out: the first two describe the old task's
// course, and usage was billed there.
func copyTurnFacts(facts []agentsvc.Event, from map[string]any) []agentsvc.Event {
	first := *openingMessage(facts[0])
	// A copy: the events may be shared with other readers.
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
	return evs
}

// loadLastTurn reads the facts of a task's last turn, page by page through its whole log.
func (s *Service) loadLastTurn(ctx context.Context, id agentsvc.TaskID) ([]agentsvc.Event, error) {
	var turn []agentsvc.Event
	for after := int64(0); ; {
		evs, full, err := s.store.Events.LoadPage(ctx, id, after, pageEvents, pageBytes)
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

// openingMessage returns the user's message if ev opens a turn, else nil: the submitted status of a new task, or a
// user message of the task's own agent.
func openingMessage(ev agentsvc.Event) *agentsvc.Message {
	switch {
	case ev.Status != nil && ev.Status.State == agentsvc.Submitted:
		return ev.Status.Message
	case ev.Message != nil && ev.Frame == "" && ev.Message.Role == agentsvc.RoleUser:
		return ev.Message
	}
	return nil
}
