package task

import (
	"context"
	"iter"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// Visibility limits what a caller can see: the tasks of Agents (nil = of all agents) and of Owner (nil = of every user
// of the tenant), and what its reads may have in memory. A task outside it is answered exactly like one that does not
// exist.
type Visibility struct {
	Agents []string
	Owner  *agentsvc.Owner
	// Memory is what the caller's reads reserve before they load a task or its events; nil = without a bound.
	Memory *capacity.MemoryReservation
}

// includesTask reports whether the caller may see t.
func (v Visibility) includesTask(t agentsvc.Task) bool {
	return (v.Agents == nil || slices.Contains(v.Agents, t.Agent)) && (v.Owner == nil || *v.Owner == t.Owner)
}

// Reader reads the tasks of one tenant.
type Reader struct {
	tasks  *store.Tasks
	tenant db.ID
	logs   *logReader
	// taskReads and pageReads merge equal reads that callers request at the same time.
	taskReads sharedReads[taskReadKey, store.StoredTask]
	pageReads sharedReads[pageReadKey, Page]
}

// Get returns the requested parts of a task, or [agentsvc.ErrNotFound] for one that does not exist or is not visible.
// The result is shared with other callers and must not be modified.
func (r *Reader) Get(ctx context.Context, visibility Visibility, id agentsvc.TaskID, parts store.TaskParts) (agentsvc.Task, error) {
	t, err := r.findTask(ctx, visibility, id, parts)
	return t.Task, err
}

// taskReadKey identifies reads of a task that can be shared: visibility is checked after the read, for each caller.
type taskReadKey struct {
	id    agentsvc.TaskID
	parts store.TaskParts
}

// findTask reads a task and checks its visibility. Every method that takes a task id from a caller goes through it.
func (r *Reader) findTask(ctx context.Context, visibility Visibility, id agentsvc.TaskID, parts store.TaskParts) (store.StoredTask, error) {
	if checkID("task_id", string(id)) != nil {
		// An id that is too long or not UTF-8 cannot exist, and PostgreSQL refuses it as a parameter.
		return store.StoredTask{}, agentsvc.ErrNotFound
	}
	t, err := r.taskReads.readShared(ctx, taskReadKey{id, parts}, func(ctx context.Context) (store.StoredTask, error) {
		return r.tasks.Load(ctx, visibility.Memory, id, parts)
	})
	if err == nil && !visibility.includesTask(t.Task) {
		err = agentsvc.ErrNotFound
	}
	if err == nil {
		// The read's memory was reserved by the caller that performed it; each caller reserves its own for what it
		// makes of the task.
		err = visibility.Memory.ReserveTotal(ctx, t.ByteSize())
	}
	if err != nil {
		return store.StoredTask{}, err
	}
	return t, nil
}

// Follow returns a task and its events. With after nil it returns the whole task and the events that follow that
// snapshot; else it returns what never changes of the task and its state, and the events after that sequence, which a
// reconnecting client passes. The events end with the task's end or with an error.
func (r *Reader) Follow(ctx context.Context, visibility Visibility, id agentsvc.TaskID, after *int64) (agentsvc.Task, iter.Seq2[agentsvc.Event, error], error) {
	parts := store.TaskParts{History: true, Artifacts: true}
	if after != nil {
		parts = store.TaskParts{StateOnly: true}
	}
	t, err := r.findTask(ctx, visibility, id, parts)
	if err != nil {
		return agentsvc.Task{}, nil, err
	}
	from := t.Seq
	if after != nil {
		from = min(max(*after, 0), t.Seq)
	}
	if from == t.Seq && t.Status.State.IsTerminal() {
		return t.Task, func(func(agentsvc.Event, error) bool) {}, nil
	}
	return t.Task, r.logs.follow(ctx, visibility.Memory, id, from), nil
}

// FindByKey returns the task that an owner's message to an agent with this idempotency key led to, or
// [agentsvc.ErrNotFound].
func (r *Reader) FindByKey(ctx context.Context, owner agentsvc.Owner, agent, key string) (agentsvc.TaskID, error) {
	id, _, err := r.tasks.FindSentMessage(ctx, owner, agent, store.SentMessage{Message: agentsvc.MessageID(key), IsKey: true})
	return id, err
}

// findSentTask returns the task that the same message opened before. It returns [agentsvc.ErrNotFound] if it was not
// sent before, and [ErrConflict] or [ErrKeyReused] if the content differs.
func (r *Reader) findSentTask(ctx context.Context, sub Submission, sent store.SentMessage) (agentsvc.Task, error) {
	id, hash, err := r.tasks.FindSentMessage(ctx, sub.Owner, sub.Agent, sent)
	if err != nil {
		return agentsvc.Task{}, err
	}
	if hash != sent.Hash {
		return agentsvc.Task{}, sub.newConflictError()
	}
	return r.Get(ctx, sub.taskVisibility(), id, store.TaskParts{History: true, Artifacts: true})
}

// findSentTurn returns the turn that the same message opened in the task that it names, or [agentsvc.ErrNotFound] if it
// was not sent before.
func (r *Reader) findSentTurn(ctx context.Context, sub Submission, sent *store.SentMessage) (acceptedTurn, error) {
	if sent == nil {
		return acceptedTurn{}, agentsvc.ErrNotFound
	}
	t, err := r.findSentTask(ctx, sub, *sent)
	switch {
	case err != nil:
		return acceptedTurn{}, err
	case t.ID != sub.Message.Task:
		return acceptedTurn{}, sub.newConflictError()
	}
	acc := acceptedTurn{task: t}
	// The turn begins at the event that carries the message, or at the first decision that the message made.
	c := cursor{sentBytes: map[agentsvc.MessageID]int{}}
	r.logs.read(ctx, sub.Memory, nil, nil, t.ID, &c, func(ev agentsvc.Event, rerr error) bool {
		if rerr != nil || ev.Message != nil && ev.Message.ID == sub.Message.ID || ev.Decision != nil && ev.Decision.Message == sub.Message.ID {
			acc.beforeSeq, err = ev.Seq-1, rerr
			return false
		}
		return true
	})
	return acc, err
}

// newConflictError returns the error for a message whose key, or else id, belongs to another message.
func (sub *Submission) newConflictError() error {
	if sub.Key != "" {
		return ErrKeyReused
	}
	return ErrConflict
}
