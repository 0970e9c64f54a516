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
	d    *db.DB
	runs *store.Runs
	hub  *Hub
	wake func()
	o    DeadOptions
}

// DeadOptions tune [DeadLetters]. The zero value works.
type DeadOptions struct {
	// Unhold gives back what the turn of a task of tenant holds of the limits that became a dead letter before a model
	// answered; nil = turns hold nothing.
	Unhold func(ctx context.Context, tenant db.ID, t agentsvc.Task, note string)
}

// NewDeadLetters returns the dead letters in d. wake is called when one has become a pending run.
func NewDeadLetters(d *db.DB, hub *Hub, wake func(), o DeadOptions) *DeadLetters {
	return &DeadLetters{d: d, runs: store.NewRuns(d), hub: hub, wake: wake, o: o}
}

// List returns the letters that f chooses, those of the newest tasks first, and how many there are on all pages.
func (l *DeadLetters) List(ctx context.Context, f store.DeadFilter) ([]store.Dead, int, error) {
	return l.runs.Dead(ctx, f)
}

// Add makes run a dead letter and ends its task as failed, unless the task no longer waits for it: that is
// [agentsvc.ErrLost].
func (l *DeadLetters) Add(ctx context.Context, run store.Run, reason string) error {
	st := store.New(l.d, run.Tenant)
	for {
		t, err := st.Standing(ctx, run.Task)
		if errors.Is(err, agentsvc.ErrNotFound) || err == nil && (t.Turn != run.Turn || t.Status.State.Terminal() || t.Status.State.Interrupted()) {
			return agentsvc.ErrLost
		}
		if err != nil {
			return err
		}
		status := told(run.Task, agentsvc.Failed, []string{"The task was given up: none of its attempts came to an end."})
		ev := stamp(run.Task, t.Seq+1, agentsvc.Event{Status: &status})
		switch err := st.GiveUp(ctx, t, run, ev, reason); {
		case err == nil:
			l.hub.publish(topicKey{run.Tenant, run.Task}, ev)
			l.unhold(ctx, st, run, t.Task)
			// Where it cannot be called up now, the queue's periodic look does.
			if called, _ := st.CallUp(ctx, t.Owner, t.Context); called {
				l.wake()
			}
			return nil
		case !isLost(err) || ctx.Err() != nil:
			return err
		}
	}
}

// unhold gives back what a turn held that was given up. Where it cannot be known the hold lapses with its window.
func (l *DeadLetters) unhold(ctx context.Context, st *store.Store, run store.Run, t agentsvc.Task) {
	if l.o.Unhold == nil {
		return
	}
	if note, err := st.Held(ctx, run.Task, run.Turn); err == nil && note != "" {
		l.o.Unhold(ctx, run.Tenant, t, note)
	}
}

// Requeue has a new task go on where that of a dead letter ended, as by, an operator, wishes, and returns its id: the old one has ended and stays
// so. What the old turn had recorded counts as done: neither model nor tool is asked for it again. It returns
// [agentsvc.ErrNotFound] for what is no dead letter, or no longer.
func (l *DeadLetters) Requeue(ctx context.Context, by string, id store.DeadID) (store.Dead, agentsvc.TaskID, error) {
	found, _, err := l.runs.Dead(ctx, store.DeadFilter{ID: id, Limit: 1})
	if err == nil && len(found) == 0 {
		err = agentsvc.ErrNotFound
	}
	if err != nil {
		return store.Dead{}, "", err
	}
	next, err := l.requeue(ctx, by, found[0])
	return found[0], next, err
}

// requeuePage is how many letters are looked up at a time.
const requeuePage = 100

// RequeueAll requeues the letters that f chooses, at most so many, and returns how many they were and how many are
// left. At an error those before it stay requeued.
func (l *DeadLetters) RequeueAll(ctx context.Context, by string, f store.DeadFilter, most int) (n, left int, err error) {
	for looked := 0; ; {
		f.Limit = min(requeuePage, most-looked)
		found, total, err := l.runs.Dead(ctx, f)
		if looked == 0 {
			left = total
		}
		if err != nil || len(found) == 0 {
			return n, left, err
		}
		looked += len(found)
		for _, d := range found {
			f.Before = d.ID // one that fails itself at once is a newer task's
			switch _, err := l.requeue(ctx, by, d); {
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

func (l *DeadLetters) requeue(ctx context.Context, by string, d store.Dead) (agentsvc.TaskID, error) {
	st := store.New(l.d, d.Tenant)
	old, err := st.Standing(ctx, d.ID.Task)
	if err != nil {
		return "", err
	}
	first, revision, err := st.Began(ctx, d.ID)
	if err != nil {
		return "", err
	}
	journal, err := st.Journal(ctx, store.Run{Task: d.ID.Task, FirstSeq: first})
	if err == nil && (len(journal) == 0 || opening(journal[0]) == nil) {
		err = fmt.Errorf("the log of task %s is incomplete", d.ID.Task)
	}
	if err != nil {
		return "", err
	}
	told, err := standing(ctx, st, d.ID.Task)
	if err != nil {
		return "", err
	}
	m := turns{tenant: d.Tenant, revision: revision, notifications: func(string) []string { return told }}
	run := m.new(request{priority: store.Normal, trace: trail.Parent(ctx)})
	m.open(&run, old.Agent, old.Owner, old.Context)
	run.Wait = true
	evs := again(run.Task, journal, map[string]any{"task_id": string(d.ID.Task)})
	run.Seq = int64(len(evs))
	entry := tenancy.Entry{Actor: by, Action: "queue.requeue", Detail: map[string]any{"run": d.ID.String(), "agent": d.Agent, "task": string(run.Task)}}
	if err := st.Requeue(ctx, d.ID, run, evs, entry); err != nil {
		return "", err
	}
	l.wake()
	return run.Task, nil
}

// standing returns the notifications of its agent's configuration that tell of a task, by id.
func standing(ctx context.Context, st *store.Store, id agentsvc.TaskID) (ids []string, err error) {
	all, err := st.Receivers(ctx, id)
	for _, r := range all {
		if r.Standing() {
			ids = append(ids, r.Name())
		}
	}
	return ids, err
}
