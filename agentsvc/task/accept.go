package task

import (
	"context"
	"errors"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
)

// A turn of a [turnSource] is accepted in four stages:
//
//  1. place: the turn's run gets a slot of this process or an entry of the tenant's queue (placement).
//  2. plan: its source reads what the turn depends on and plans it, without writing anything (turnPlan).
//  3. commit: one call of the store writes the task, the run and the first events, if nothing has changed since.
//  4. dispatch: the run starts in its slot, or the workers of the queue are notified.
//
// Where the commit finds that the task or its session has changed, the turn is planned again.

// turnSource is what opens a turn: a message (newTask, continuation), decisions, or a checkpoint (restoration).
type turnSource interface {
	// plan returns the turn with its run at where, or the earlier turn of a repeated message.
	plan(ctx context.Context, where placement) (turnPlan, error)
	// resolveConflict decides what follows after a commit failed with err: with nil the turn is planned again, at the
	// returned placement. Other errors are returned to the caller.
	resolveConflict(ctx context.Context, where placement, err error) (placement, error)
}

// turnPlan is a turn that is ready to be written.
type turnPlan struct {
	turn store.NewTurn
	// seen is the task that the turn continues, as it was read; the zero value for a new task.
	seen store.StoredTask
	// decisions is set where decisions change seen. turn is then decisions.NextTurn, or the zero value where the task
	// still waits or has ended.
	decisions *store.DecisionRecord
	// repeated is the earlier turn of a message that was accepted before; nil = this is a turn of its own.
	repeated *acceptedTurn
}

// firstEvents returns the events that the plan writes.
func (p turnPlan) firstEvents() []agentsvc.Event {
	if p.decisions != nil {
		return p.decisions.Events
	}
	return p.turn.Events
}

// taskAfter returns the task as it is after the plan's events.
func (p turnPlan) taskAfter() agentsvc.Task {
	t := p.seen.Task
	if t.ID == "" {
		t = agentsvc.Task{ID: p.turn.Task, Context: p.turn.Context, Agent: p.turn.Agent, Owner: p.turn.Owner, Created: p.turn.Events[0].At}
	}
	for _, ev := range p.firstEvents() {
		t.ApplyEvent(ev)
	}
	if p.decisions != nil {
		t.Approvals = nil
		if t.Status.State.IsInterrupted() {
			t.Approvals = p.decisions.OpenApprovals(p.seen.Approvals)
		}
	}
	return t
}

// acceptedTurn is a turn that is committed and whose run waits to be dispatched.
type acceptedTurn struct {
	// task is the task after the turn's first events.
	task agentsvc.Task
	// events are those written with the turn; nil where a repeated message found an earlier turn, so that there is
	// nothing to start.
	events []agentsvc.Event
	// beforeSeq is the sequence before the first event of that earlier turn; set only where events is nil.
	beforeSeq int64
	// turn is what was written. It has no task where decisions opened no run.
	turn store.NewTurn
}

// hasSlot reports that a slot of this process is reserved for the turn's run.
func (a acceptedTurn) hasSlot() bool { return a.events != nil && a.turn.Worker != "" }

// pipeline carries a tenant's turns through the stages.
type pipeline struct {
	turnFactory
	store    *store.Store
	hub      *Hub
	executor Executor
	// maxQueueDepth is [Options].MaxQueueDepth.
	maxQueueDepth int64
}

// acceptOptions say how the run of a turn is placed. The zero value is that of a turn for which no caller waits and which
// the queue always takes.
type acceptOptions struct {
	// isAwaited reports that a caller waits for the turn: its run begins in a slot of this process if one is free.
	isAwaited bool
	// isCounted is [placement].isCounted.
	isCounted bool
}

// accept places, plans and commits a turn of src; its caller dispatches it. Where the tenant's limit of executing runs is
// reached, the run waits in the queue. A process that stops accepts only turns that it can execute. On failure
// everything that was reserved is released.
func (p *pipeline) accept(ctx context.Context, src turnSource, o acceptOptions) (acc acceptedTurn, err error) {
	mustStart, end, err := p.executor.BeginTurn()
	if err != nil {
		return acceptedTurn{}, err
	}
	defer end()
	where, err := p.placeRun(ctx, o.isAwaited || mustStart, placement{isCounted: o.isCounted, mustStart: mustStart})
	defer func() { p.closePlacement(where, acc) }()
	if err != nil {
		return acceptedTurn{}, err
	}
	for range maxQueueAttempts {
		var plan turnPlan
		switch plan, err = src.plan(ctx, where); {
		case err != nil:
			return acceptedTurn{}, err
		case plan.repeated != nil:
			return *plan.repeated, nil
		}
		switch acc, err = p.commit(ctx, plan); {
		case err == nil:
			return acc, nil
		case errors.Is(err, store.ErrTooManyRunning):
			where, err = p.moveToQueue(ctx, where)
		case errors.Is(err, agentsvc.ErrSessionBusy), errors.Is(err, store.ErrAlreadySent), errors.Is(err, agentsvc.ErrTaskChanged) && ctx.Err() == nil:
			where, err = src.resolveConflict(ctx, where, err)
		}
		if err != nil {
			return acceptedTurn{}, err
		}
	}
	return acceptedTurn{}, agentsvc.ErrSessionBusy
}

// commit writes a planned turn and publishes its events to the readers of a task that exists.
func (p *pipeline) commit(ctx context.Context, plan turnPlan) (acceptedTurn, error) {
	var err error
	switch {
	case plan.decisions != nil:
		err = p.store.Approvals.RecordDecisions(ctx, plan.seen, *plan.decisions)
	case plan.seen.ID != "":
		err = p.store.Tasks.Continue(ctx, plan.seen, plan.turn)
	default:
		err = p.store.Tasks.Create(ctx, plan.turn)
	}
	if err != nil {
		return acceptedTurn{}, err
	}
	acc := acceptedTurn{task: plan.taskAfter(), events: plan.firstEvents(), turn: plan.turn}
	if plan.seen.ID != "" {
		p.hub.publishEvents(topicKey{p.tenant, plan.seen.ID}, acc.events...)
	}
	return acc, nil
}

// dispatch starts the committed turn's run: in its reserved slot, or by notifying the queue. There is nothing to
// start for a repeated message, and after decisions that opened no run.
func (p *pipeline) dispatch(acc acceptedTurn) {
	switch {
	case acc.hasSlot():
		p.executor.StartRun(acc.turn.Run)
	case acc.events != nil && acc.turn.Task != "":
		p.executor.NotifyQueued(acc.turn)
	}
}

// placement is where the run of a turn begins: in a slot of this process, under its lease, or in the queue.
type placement struct {
	// worker has a slot for the run; "" = the run waits in the queue.
	worker string
	// mustStart reports that the process stops: the run may not wait in the queue.
	mustStart bool
	// isCounted reports that the run needs an entry of the tenant's queue where it waits there (MaxQueueDepth).
	isCounted bool
	// confirmEntry, which is nil without such an entry, must be called with whether the run was written.
	confirmEntry func(written bool)
}

// placeRun adds to where the slot of this process in which the run starts at once, if one is wanted and free, or else
// its entry of the queue.
func (p *pipeline) placeRun(ctx context.Context, wantsSlot bool, where placement) (placement, error) {
	if wantsSlot {
		if worker, ok := p.executor.AcquireSlot(p.tenant); ok {
			where.worker = worker
			return where, nil
		}
	}
	return p.moveToQueue(ctx, where)
}

// moveToQueue returns the placement of the run in the queue and releases its slot, if it has one. The error is that of a
// full queue, or [agentsvc.ErrStopping]; where is then without a slot too.
func (p *pipeline) moveToQueue(ctx context.Context, where placement) (placement, error) {
	if where.worker != "" {
		p.executor.ReleaseSlot(p.tenant)
		where.worker = ""
	}
	if where.mustStart {
		return where, agentsvc.ErrStopping
	}
	if !where.isCounted || where.confirmEntry != nil || p.maxQueueDepth == 0 {
		return where, nil
	}
	var err error
	where.confirmEntry, err = p.executor.AcquireQueueEntry(ctx, p.tenant, p.maxQueueDepth)
	return where, err
}

// closePlacement releases a slot in which acc starts no run, and confirms or returns the entry of the queue.
func (p *pipeline) closePlacement(where placement, acc acceptedTurn) {
	if where.worker != "" && !acc.hasSlot() {
		p.executor.ReleaseSlot(p.tenant)
	}
	if where.confirmEntry != nil {
		where.confirmEntry(acc.events != nil)
	}
}
