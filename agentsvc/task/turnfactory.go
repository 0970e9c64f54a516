package task

import (
	"cmp"
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/receiver"
	"stoa/agentsvc/trail"
	"stoa/tenancy/db"
)

// turnFactory creates the turns of one tenant. Every field that a turn has from the start is set here or in its plan,
// whatever opens it: a message, a decision, a trigger, a restored checkpoint or a requeued dead letter.
type turnFactory struct {
	tenant        db.ID
	revision      int64
	maxConcurrent int64 // limit of executing runs, enforced when the run is written under a lease; 0 = none
	// notifications returns the ids of the notifications that report on tasks of an agent; nil = none.
	notifications func(agent string) []string
}

// opening is what opens a turn, as far as its run keeps it.
type opening struct {
	message     agentsvc.Message   // the zero value for decisions and copied turns
	newContext  agentsvc.ContextID // of a task without a context; "" = a random one
	priority    store.Priority
	trace       string             // W3C traceparent of the requesting span; "" = not traced
	reservation *LimitReservation  // nil = nothing was reserved
	receiver    *receiver.Receiver // nil = none
	roles       []string           // of the caller; those of the turn before for decisions and copied turns
}

// newOpening returns the opening of a message's turn. A message without an id gets one.
func (sub Submission) newOpening(ctx context.Context) opening {
	m := sub.Message
	m.Role = agentsvc.RoleUser
	if m.ID == "" {
		m.ID = agentsvc.MessageID(agentsvc.NewID())
	}
	return opening{message: m, newContext: sub.NewContext, priority: sub.priority(), trace: trail.TraceParent(ctx), reservation: sub.LimitReservation, receiver: sub.Receiver, roles: sub.Roles}
}

// priority returns the priority of the turn's run.
func (sub Submission) priority() store.Priority {
	switch {
	case sub.Awaited:
		return store.PriorityAwaited
	case sub.Background:
		return store.PriorityBackground
	}
	return store.PriorityNormal
}

// newTurn returns a turn whose task is still to be set.
func (f turnFactory) newTurn(o opening, where placement) store.NewTurn {
	turn := store.NewTurn{
		Run: store.Run{
			Tenant: f.tenant, Revision: f.revision, Message: o.message, Trace: o.trace, Roles: o.roles, Lease: store.Lease{Worker: where.worker},
		},
		Priority: o.priority, MaxRunning: f.maxConcurrent, Receiver: o.receiver,
		// A run with a slot must begin now or not at all; one without may wait behind others of its session.
		MayWait: where.worker == "",
	}
	if o.reservation != nil {
		turn.LimitReservation = o.reservation.Note
	}
	// The claim of a queued run counts its attempt; this run is never claimed.
	if where.worker != "" {
		turn.Attempts = 1
	}
	return turn
}

// newTask returns the first turn of a new task. With context "" the task also opens a new context. Epoch 1 and sequence
// 1 are those of the task's first write.
func (f turnFactory) newTask(o opening, where placement, agent string, owner agentsvc.Owner, context agentsvc.ContextID) store.NewTurn {
	turn := f.newTurn(o, where)
	turn.Task = agentsvc.TaskID(agentsvc.NewID())
	turn.Agent, turn.Owner, turn.Context, turn.IsNewContext = agent, owner, context, context == ""
	if turn.IsNewContext {
		turn.Context = cmp.Or(o.newContext, agentsvc.ContextID(agentsvc.NewID()))
	}
	turn.Turn, turn.Epoch, turn.FirstSeq = 1, 1, 1
	turn.Message.Task, turn.Message.Context = turn.Task, ""
	if f.notifications != nil {
		turn.Notifications = f.notifications(agent)
	}
	return turn
}

// nextTurn returns the turn of t that follows its current one, at the next epoch: that fences any worker of an earlier
// turn. first is the sequence at which the turn's journal begins. A new message begins a new journal; a decision passes
// the paused turn's FirstSeq, so that the run replays what was done before the pause.
func (f turnFactory) nextTurn(o opening, where placement, t store.StoredTask, first int64) store.NewTurn {
	turn := f.newTurn(o, where)
	turn.Task, turn.Context, turn.Agent, turn.Owner = t.ID, t.Context, t.Agent, t.Owner
	turn.Turn, turn.Epoch, turn.FirstSeq, turn.Seq = t.Turn+1, t.Epoch+1, first, t.Seq
	turn.Message.Task, turn.Message.Context = turn.Task, ""
	return turn
}

// setFirstEvents sets the events that are written with turn. They get its task, the sequences that follow turn.Seq and
// the current time.
func setFirstEvents(turn *store.NewTurn, evs []agentsvc.Event) {
	for i, ev := range evs {
		evs[i] = stampEvent(turn.Task, turn.Seq+1+int64(i), ev)
	}
	turn.Events = evs
	turn.Seq += int64(len(evs))
}
