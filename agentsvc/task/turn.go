package task

import (
	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// turnFactory makes the runs of the turns of one tenant's tasks. What a run is born with is set here, whatever its turn comes from: a
// message, a decision, a trigger, a restored checkpoint or a requeued dead letter.
type turnFactory struct {
	tenant        db.ID
	revision      int64
	maxConcurrent int64 // of runs at work at a time; 0 = none
	// notifications are those that tell of the tasks of an agent, by id; nil = none do.
	notifications func(agent string) []string
}

func (s *Service) newTurnFactory() turnFactory {
	return turnFactory{s.tenant, s.revision, s.options.MaxConcurrent, s.options.Notifications}
}

// runRequest is what asks for a run.
type runRequest struct {
	priority store.Priority
	trace    string // names the span of what asks; "" = nobody records
	worker   string // that has a place for the run; "" = it waits in the queue
}

// newRun returns a run without a task yet.
func (m turnFactory) newRun(r runRequest) store.Run {
	run := store.Run{Tenant: m.tenant, Revision: m.revision, MaxRunning: m.maxConcurrent, Priority: r.priority, Trace: r.trace, Worker: r.worker}
	if r.worker != "" {
		run.Attempts = 1
	}
	return run
}

// setNewTask makes run the first turn of a new task, in a context of its own where context is "".
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

// setNextTurn makes run the turn of t that follows its last one. Its facts begin with first, and seq is the last of them that is
// written with it.
func (m turnFactory) setNextTurn(run *store.Run, t store.StoredTask, first, seq int64) {
	run.Task, run.Context, run.Agent, run.Owner = t.ID, t.Context, t.Agent, t.Owner
	run.Turn, run.Epoch, run.FirstSeq, run.Seq = t.Turn+1, t.Epoch+1, first, seq
	run.MayWait = run.Worker == ""
}
