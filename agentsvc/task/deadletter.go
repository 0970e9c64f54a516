package task

import (
	"context"
	"errors"
	"fmt"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/deadletter"
	"stoa/agentsvc/trail"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// DeadLetters gives the operator access to the failed runs of all tenants: those whose last attempt failed, whose
// workers died too often, or that could not begin. Their tasks have ended as failed. Requeueing opens a new task.
type DeadLetters struct {
	db           *db.DB
	hub          *Hub
	wakeClaimers func()
	options      DeadOptions
}

// DeadOptions configure [DeadLetters]. The zero value works.
type DeadOptions struct {
	// ReleaseTokens releases what the turn had reserved from the tenant's limits, where no model call of it was
	// recorded; nil = turns reserve nothing.
	ReleaseTokens func(ctx context.Context, tenant db.ID, t agentsvc.Task, note string)
}

// NewDeadLetters returns the dead letters in d. wake is called when one became a pending run.
func NewDeadLetters(d *db.DB, hub *Hub, wake func(), o DeadOptions) *DeadLetters {
	return &DeadLetters{db: d, hub: hub, wakeClaimers: wake, options: o}
}

// List returns the dead letters that f selects, those of the newest tasks first, and how many there are on all pages.
func (l *DeadLetters) List(ctx context.Context, f deadletter.Filter) ([]deadletter.Letter, int, error) {
	return deadletter.List(ctx, l.db, f)
}

// GiveUp makes run a dead letter and ends its task as failed. It returns [agentsvc.ErrLeaseLost] if the task does not
// wait for the run any more. queue.Options.GiveUp calls it.
func (l *DeadLetters) GiveUp(ctx context.Context, run store.Run, reason string) error {
	st := store.New(l.db, run.Tenant)
	for {
		t, err := st.Tasks.LoadState(ctx, run.Task)
		if errors.Is(err, agentsvc.ErrNotFound) || err == nil && (t.Turn != run.Turn || t.Status.State.IsTerminal() || t.Status.State.IsInterrupted()) {
			return agentsvc.ErrLeaseLost
		}
		if err != nil {
			return err
		}
		status := newStatus(run.Task, agentsvc.Failed, []string{"The task was given up: none of its attempts came to an end."})
		setFailure(&status, agentsvc.Failure{Code: agentsvc.FailureInternal})
		ev := stampEvent(run.Task, t.Seq+1, agentsvc.Event{Status: &status})
		switch err := st.DeadLetters.GiveUp(ctx, t, run, ev, reason); {
		case err == nil:
			l.hub.publishEvents(topicKey{run.Tenant, run.Task}, ev)
			l.releaseTokens(ctx, st, run, t.Task)
			// On failure the queue's periodic check promotes the run.
			if called, _ := st.Runs.PromoteNext(ctx, t.Owner, t.Context); called {
				l.wakeClaimers()
			}
			return nil
		case !errors.Is(err, agentsvc.ErrTaskChanged) || ctx.Err() != nil:
			return err
		}
	}
}

// releaseTokens releases the reservation of a turn that was given up. On failure it expires with its window.
func (l *DeadLetters) releaseTokens(ctx context.Context, st *store.Store, run store.Run, t agentsvc.Task) {
	if l.options.ReleaseTokens == nil {
		return
	}
	if note, err := st.Runs.LoadLimitReservation(ctx, run.Task, run.Turn); err == nil && note != "" {
		l.options.ReleaseTokens(ctx, run.Tenant, t, note)
	}
}

// Requeue opens a new task that continues a dead letter's turn and returns its id; by is the operator, for the audit
// entry. The old task stays failed. The turn's recorded facts are copied, so neither model nor tool is called again
// for them; memory is reserved for these facts. It returns [agentsvc.ErrNotFound] if id is no dead letter (any more).
func (l *DeadLetters) Requeue(ctx context.Context, memory *capacity.MemoryReservation, by audit.Actor, id deadletter.ID) (deadletter.Letter, agentsvc.TaskID, error) {
	found, _, err := deadletter.List(ctx, l.db, deadletter.Filter{ID: id, Limit: 1})
	if err == nil && len(found) == 0 {
		err = agentsvc.ErrNotFound
	}
	if err != nil {
		return deadletter.Letter{}, "", err
	}
	next, err := l.requeueRun(ctx, memory, by, found[0])
	return found[0], next, err
}

// requeuePageSize is how many dead letters RequeueAll reads at a time.
const requeuePageSize = 100

// RequeueAll requeues the dead letters that f selects and stops after most of them. It returns how many it requeued
// and how many are left. An error stops it as well; those requeued before stay so.
func (l *DeadLetters) RequeueAll(ctx context.Context, memory *capacity.MemoryReservation, by audit.Actor, f deadletter.Filter, most int) (n, left int, err error) {
	for looked := 0; ; {
		f.Limit = min(requeuePageSize, most-looked)
		found, total, err := deadletter.List(ctx, l.db, f)
		if looked == 0 {
			left = total
		}
		if err != nil || len(found) == 0 {
			return n, left, err
		}
		looked += len(found)
		for _, d := range found {
			f.Before = d.ID // a requeued run that fails at once belongs to a newer task, so it is not read again
			switch _, err := l.requeueRun(ctx, memory, by, d); {
			case err == nil:
				n, left = n+1, left-1
			case errors.Is(err, agentsvc.ErrNotFound): // another operator requeued it
				left--
			default:
				return n, left, fmt.Errorf("requeue run %s: %w", d.ID, err)
			}
		}
	}
}

// requeueRun requeues one dead letter. The store sets the new run's revision to the tenant's current one: the failure
// may be one of the old configuration.
func (l *DeadLetters) requeueRun(ctx context.Context, memory *capacity.MemoryReservation, by audit.Actor, d deadletter.Letter) (agentsvc.TaskID, error) {
	st := store.New(l.db, d.Tenant)
	old, err := st.Tasks.LoadState(ctx, d.ID.Task)
	if err != nil {
		return "", err
	}
	first, revision, err := st.DeadLetters.LoadStart(ctx, d.ID)
	if err != nil {
		return "", err
	}
	journal, err := st.Runs.LoadJournal(ctx, memory, d.ID.Task, first)
	if err == nil && (len(journal) == 0 || openingMessage(journal[0]) == nil) {
		err = fmt.Errorf("the log of task %s is incomplete", d.ID.Task)
	}
	if err != nil {
		return "", err
	}
	reported, err := loadStandingReceivers(ctx, st, d.ID.Task)
	if err != nil {
		return "", err
	}
	roles, err := st.Runs.LoadRoles(ctx, d.ID.Task)
	if err != nil {
		return "", err
	}
	f := turnFactory{tenant: d.Tenant, revision: revision, notifications: func(string) []string { return reported }}
	turn := f.newTask(opening{priority: store.PriorityNormal, trace: trail.TraceParent(ctx), roles: roles}, placement{}, old.Agent, old.Owner, old.Context)
	setFirstEvents(&turn, copyTurnFacts(journal, map[string]any{"task_id": string(d.ID.Task)}))
	turn.AuditEntries = []audit.Entry{{
		Actor: by, Action: "queue.requeue", Detail: map[string]any{"run": d.ID.String(), "agent": d.Agent, "task": string(turn.Task)},
	}}
	if err := st.DeadLetters.Requeue(ctx, d.ID, turn); err != nil {
		return "", err
	}
	l.wakeClaimers()
	return turn.Task, nil
}

// loadStandingReceivers returns the ids of the configured notifications that reported on a task. The new task gets
// the same: this code has no access to the tenant's configuration.
func loadStandingReceivers(ctx context.Context, st *store.Store, id agentsvc.TaskID) (ids []string, err error) {
	all, err := st.Receivers.List(ctx, id)
	for _, r := range all {
		if r.IsStanding() {
			ids = append(ids, r.PublicID())
		}
	}
	return ids, err
}
