package task

import (
	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// turnFactory creates the runs of one tenant's turns. Every field that a run has from the start is set here, whatever
// opens the turn: a message, a decision, a trigger, a restored checkpoint or a requeued dead letter.
type turnFactory struct {
	tenant        db.ID
	revision      int64
	maxConcurrent int64 // limit of executing runs, enforced when the run is written under a lease; 0 = none
	// notifications returns the ids of the notifications that report on tasks of an agent; nil = none.
	notifications func(agent string) []string
}

func (s *Service) newTurnFactory() turnFactory {
	return turnFactory{s.tenant, s.revision, s.options.MaxConcurrent, s.options.Notifications}
}

// runRequest is what the turn's origin decides about its run.
type runRequest struct {
	priority store.Priority
	trace    string // W3C traceparent of the requesting span; "" = not traced
	worker   string // worker with a reserved slot for the run; "" = the run waits in the queue
}

// newRun returns a run that does not belong to a task yet. A run with a worker is created in its first attempt.
func (m turnFactory) newRun(r runRequest) store.Run {
	run := store.Run{Tenant: m.tenant, Revision: m.revision, MaxRunning: m.maxConcurrent, Priority: r.priority, Trace: r.trace, Worker: r.worker}
	// The claim of a queued run counts its attempt; this run is never claimed.
	if r.worker != "" {
		run.Attempts = 1
	}
	return run
}

// setNewTask makes run the first turn of a new task. With context "" the task also opens a new context, whose id
// derives from the task's. Epoch 1 and sequence 1 are those of the task's first write.
func (m turnFactory) setNewTask(run *store.Run, agent string, owner agentsvc.Owner, context agentsvc.ContextID) {
	run.Task = agentsvc.TaskID(agentsvc.NewID())
	run.Agent, run.Owner, run.Context, run.IsNewContext = agent, owner, context, context == ""
	if run.IsNewContext {
		run.Context = store.ContextIDForTask(run.Task)
	}
	run.Turn, run.Epoch, run.FirstSeq = 1, 1, 1
	run.Notifications = nil
	if m.notifications != nil {
		run.Notifications = m.notifications(agent)
	}
}

// setNextTurn makes run the turn of t that follows its current one, at the next epoch: that fences any worker of an
// earlier turn. first is the sequence at which the turn's journal begins, seq the last event written with the run. A
// new message begins a new journal; a decision passes the paused turn's FirstSeq, so that the run replays what was
// done before the pause.
func (m turnFactory) setNextTurn(run *store.Run, t store.StoredTask, first, seq int64) {
	run.Task, run.Context, run.Agent, run.Owner = t.ID, t.Context, t.Agent, t.Owner
	run.Turn, run.Epoch, run.FirstSeq, run.Seq = t.Turn+1, t.Epoch+1, first, seq
	// A run with a slot must begin now or not at all; one without may wait behind others of its session.
	run.MayWait = run.Worker == ""
}
