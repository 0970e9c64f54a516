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

// Checkpoints are the points of a tenant's tasks from which these can be restored.
type Checkpoints struct {
	turns  *pipeline
	reader *Reader
}

// List returns the checkpoint events of a task's last turn, oldest first. It returns
// [agentsvc.ErrNotFound] for a task that is not visible.
func (c *Checkpoints) List(ctx context.Context, visibility Visibility, id agentsvc.TaskID) ([]agentsvc.Event, error) {
	if _, err := c.reader.findTask(ctx, visibility, id, store.TaskParts{}); err != nil {
		return nil, err
	}
	facts, err := c.reader.logs.loadLastTurn(ctx, visibility.Memory, id)
	return slices.DeleteFunc(facts, func(ev agentsvc.Event) bool { return ev.Checkpoint == nil }), err
}

// Restore opens a new task that continues a failed or cancelled one from a checkpoint, given by its
// sequence. The turn's facts up to the checkpoint are copied into the new task's log, so its run replays them and
// calls neither model nor tool again for them. The new task belongs to the old one's owner and context and waits in
// their session's queue; the old task is unchanged. reservation, which may be nil, is stored with the run; by is
// named in the audit entry. It returns [agentsvc.ErrNotFound] for a task that is not visible and for a sequence that
// is no checkpoint of its last turn, and [ErrNotRestorable].
func (c *Checkpoints) Restore(ctx context.Context, visibility Visibility, id agentsvc.TaskID, checkpoint int64, by audit.Actor, reservation *LimitReservation) (agentsvc.Task, error) {
	t, err := c.reader.findTask(ctx, visibility, id, store.TaskParts{})
	if err != nil {
		return agentsvc.Task{}, err
	}
	if state := t.Status.State; state != agentsvc.Failed && state != agentsvc.Cancelled {
		return agentsvc.Task{}, ErrNotRestorable
	}
	facts, err := c.reader.logs.loadLastTurn(ctx, visibility.Memory, id)
	if err != nil {
		return agentsvc.Task{}, err
	}
	at := slices.IndexFunc(facts, func(ev agentsvc.Event) bool { return ev.Seq == checkpoint && ev.Checkpoint != nil })
	if at < 0 {
		return agentsvc.Task{}, agentsvc.ErrNotFound
	}
	acc, err := c.turns.accept(ctx, &restoration{turns: c.turns, old: t.Task, facts: facts[:at+1], checkpoint: checkpoint, by: by, reservation: reservation}, acceptOptions{isCounted: true})
	if err != nil {
		return agentsvc.Task{}, err
	}
	if reservation != nil {
		reservation.Recorded = true
	}
	c.turns.dispatch(acc)
	return acc.task, nil
}

// restoration is the source of a task that is restored from a checkpoint.
type restoration struct {
	turns       *pipeline
	old         agentsvc.Task
	facts       []agentsvc.Event // of the old task's last turn, up to the checkpoint
	checkpoint  int64
	by          audit.Actor
	reservation *LimitReservation
}

// plan implements turnSource.
func (r *restoration) plan(ctx context.Context, where placement) (turnPlan, error) {
	roles, err := r.turns.store.Runs.LoadRoles(ctx, r.old.ID)
	if err != nil {
		return turnPlan{}, err
	}
	o := opening{priority: store.PriorityNormal, trace: trail.TraceParent(ctx), reservation: r.reservation, roles: roles}
	turn := r.turns.newTask(o, where, r.old.Agent, r.old.Owner, r.old.Context)
	setFirstEvents(&turn, copyTurnFacts(r.facts, map[string]any{"task_id": string(r.old.ID), "checkpoint": r.checkpoint}))
	turn.AuditEntries = []audit.Entry{{Actor: r.by, Action: "checkpoint.restore", Detail: map[string]any{
		"task": string(r.old.ID), "checkpoint": r.checkpoint, "agent": r.old.Agent, "restored_as": string(turn.Task),
	}}}
	return turnPlan{turn: turn}, nil
}

// resolveConflict implements turnSource: another run joined the session's queue at the same time.
func (r *restoration) resolveConflict(_ context.Context, where placement, _ error) (placement, error) {
	return where, nil
}

// copyTurnFacts returns the facts of a turn as the beginning of another task. The first message's metadata names its
// origin (restored_from). Status events, approvals, attempts and usage are left out: the first three describe the old
// task's course, and usage was billed there.
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
		if ev.Status == nil && ev.Approval == nil && ev.Usage == nil && ev.Attempt == nil {
			evs = append(evs, ev)
		}
	}
	return evs
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
