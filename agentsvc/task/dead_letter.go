package task

import (
	"context"
	"errors"
	"fmt"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/trail"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// DeadLetters are the runs of all apps that have failed: after their last try, because their worker died with them too
// often, or because no try could even begin. Their tasks have ended.
type DeadLetters struct {
	db           *db.DB
	runs         *store.RunQueue
	hub          *Hub
	wakeClaimers func()
	options      DeadOptions
}

// DeadOptions tune [DeadLetters]. The zero value works.
type DeadOptions struct {
	// ReleaseReservation gives back what the turn of a task of tenant holds of the limits that became a dead letter before a model
	// answered; nil = turns hold nothing.
	ReleaseReservation func(ctx context.Context, tenant db.ID, t agentsvc.Task, note string)
}

// NewDeadLetters returns the dead letters in d. wake is called when one has become a pending run.
func NewDeadLetters(d *db.DB, hub *Hub, wake func(), o DeadOptions) *DeadLetters {
	return &DeadLetters{db: d, runs: store.NewRunQueue(d), hub: hub, wakeClaimers: wake, options: o}
}

// List returns the letters that f chooses, those of the newest tasks first, and how many there are on all pages.
func (l *DeadLetters) List(ctx context.Context, f store.DeadLetterFilter) ([]store.DeadLetter, int, error) {
	return l.runs.ListDeadLetters(ctx, f)
}

// Add makes run a dead letter and ends its task as failed, unless the task no longer waits for it: that is
// [agentsvc.ErrLeaseLost].
func (l *DeadLetters) Add(ctx context.Context, run store.Run, reason string) error {
	st := store.New(l.db, run.Tenant)
	for {
		t, err := st.LoadTaskState(ctx, run.Task)
		if errors.Is(err, agentsvc.ErrNotFound) || err == nil && (t.Turn != run.Turn || t.Status.State.IsTerminal() || t.Status.State.IsInterrupted()) {
			return agentsvc.ErrLeaseLost
		}
		if err != nil {
			return err
		}
		status := newStatus(run.Task, agentsvc.Failed, []string{"The task was given up: none of its attempts came to an end."})
		ev := stampEvent(run.Task, t.Seq+1, agentsvc.Event{Status: &status})
		switch err := st.DeadLetterRun(ctx, t, run, ev, reason); {
		case err == nil:
			l.hub.publishEvents(topicKey{run.Tenant, run.Task}, ev)
			l.releaseReservation(ctx, st, run, t.Task)
			// Where it cannot be called up now, the queue's periodic look does.
			if called, _ := st.PromoteNextRun(ctx, t.Owner, t.Context); called {
				l.wakeClaimers()
			}
			return nil
		case !isLost(err) || ctx.Err() != nil:
			return err
		}
	}
}

// releaseReservation gives back what a turn held that was given up. Where it cannot be known the hold lapses with its window.
func (l *DeadLetters) releaseReservation(ctx context.Context, st *store.Store, run store.Run, t agentsvc.Task) {
	if l.options.ReleaseReservation == nil {
		return
	}
	if note, err := st.LoadReservation(ctx, run.Task, run.Turn); err == nil && note != "" {
		l.options.ReleaseReservation(ctx, run.Tenant, t, note)
	}
}

// Requeue has a new task go on where that of a dead letter ended, as by, an operator, wishes, and returns its id: the old one has ended and stays
// so. What the old turn had recorded counts as done: neither model nor tool is asked for it again. It returns
// [agentsvc.ErrNotFound] for what is no dead letter, or no longer.
func (l *DeadLetters) Requeue(ctx context.Context, by string, id store.DeadLetterID) (store.DeadLetter, agentsvc.TaskID, error) {
	found, _, err := l.runs.ListDeadLetters(ctx, store.DeadLetterFilter{ID: id, Limit: 1})
	if err == nil && len(found) == 0 {
		err = agentsvc.ErrNotFound
	}
	if err != nil {
		return store.DeadLetter{}, "", err
	}
	next, err := l.requeueRun(ctx, by, found[0])
	return found[0], next, err
}

// requeuePageSize is how many letters are looked up at a time.
const requeuePageSize = 100

// RequeueAll requeues the letters that f chooses, at most so many, and returns how many they were and how many are
// left. At an error those before it stay requeued.
func (l *DeadLetters) RequeueAll(ctx context.Context, by string, f store.DeadLetterFilter, most int) (n, left int, err error) {
	for looked := 0; ; {
		f.Limit = min(requeuePageSize, most-looked)
		found, total, err := l.runs.ListDeadLetters(ctx, f)
		if looked == 0 {
			left = total
		}
		if err != nil || len(found) == 0 {
			return n, left, err
		}
		looked += len(found)
		for _, d := range found {
			f.Before = d.ID // one that fails itself at once is a newer task's
			switch _, err := l.requeueRun(ctx, by, d); {
			case err == nil:
				n, left = n+1, left-1
			case errors.Is(err, agentsvc.ErrNotFound): // somebody else was faster
				left--
			default:
				return n, left, fmt.Errorf("requeue run %s: %w", d.ID, err)
			}
		}
	}
}

func (l *DeadLetters) requeueRun(ctx context.Context, by string, d store.DeadLetter) (agentsvc.TaskID, error) {
	st := store.New(l.db, d.Tenant)
	old, err := st.LoadTaskState(ctx, d.ID.Task)
	if err != nil {
		return "", err
	}
	first, revision, err := st.LoadDeadLetterStart(ctx, d.ID)
	if err != nil {
		return "", err
	}
	journal, err := st.LoadJournal(ctx, store.Run{Task: d.ID.Task, FirstSeq: first})
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
	m := turnFactory{tenant: d.Tenant, revision: revision, notifications: func(string) []string { return reported }}
	run := m.newRun(runRequest{priority: store.PriorityNormal, trace: trail.TraceParent(ctx)})
	m.setNewTask(&run, old.Agent, old.Owner, old.Context)
	run.MayWait = true
	evs := copyTurnFacts(run.Task, journal, map[string]any{"task_id": string(d.ID.Task)})
	run.Seq = int64(len(evs))
	entry := tenancy.AuditEntry{Actor: by, Action: "queue.requeue", Detail: map[string]any{"run": d.ID.String(), "agent": d.Agent, "task": string(run.Task)}}
	if err := st.RequeueDeadLetter(ctx, d.ID, run, evs, entry); err != nil {
		return "", err
	}
	l.wakeClaimers()
	return run.Task, nil
}

// loadStandingReceivers returns the notifications of its agent's configuration that tell of a task, by id.
func loadStandingReceivers(ctx context.Context, st *store.Store, id agentsvc.TaskID) (ids []string, err error) {
	all, err := st.ListReceivers(ctx, id)
	for _, r := range all {
		if r.IsStanding() {
			ids = append(ids, r.PublicID())
		}
	}
	return ids, err
}
