package task

import (
	"context"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/receiver"
	"stoa/tenancy/audit"
)

// Receivers are the push notification receivers of a tenant's tasks, as their owners manage them.
type Receivers struct {
	reader    *Reader
	receivers *receiver.Store
	hash      func(text []byte) string
}

// Set registers added for the events of its task from now on, or replaces the receiver with its id, and returns it as
// stored. An empty id becomes the task's. It returns [agentsvc.ErrNotFound] for a task that is not visible, and
// [receiver.ErrTooMany].
func (r *Receivers) Set(ctx context.Context, visibility Visibility, from audit.Origin, added receiver.Receiver) (receiver.Receiver, error) {
	if _, err := r.reader.findTask(ctx, visibility, added.Task, store.TaskParts{}); err != nil {
		return added, err
	}
	if added.ID == "" {
		added.ID = string(added.Task)
	}
	return added, r.receivers.Set(ctx, added, newReceiverEntries(r.hash, visibility, from, "notification.set", added.Task, added.ID)...)
}

// List returns the receivers of a task ordered by id, or [agentsvc.ErrNotFound] for a task that is not visible.
func (r *Receivers) List(ctx context.Context, visibility Visibility, id agentsvc.TaskID) ([]receiver.Receiver, error) {
	if _, err := r.reader.findTask(ctx, visibility, id, store.TaskParts{}); err != nil {
		return nil, err
	}
	return r.receivers.List(ctx, id)
}

// Drop removes a receiver. It is no error if there is none; [agentsvc.ErrNotFound] is for a task that is not visible.
func (r *Receivers) Drop(ctx context.Context, visibility Visibility, from audit.Origin, id agentsvc.TaskID, receiver string) error {
	if _, err := r.reader.findTask(ctx, visibility, id, store.TaskParts{}); err != nil {
		return err
	}
	return r.receivers.Delete(ctx, id, receiver, newReceiverEntries(r.hash, visibility, from, "notification.drop", id, receiver)...)
}

// checkReceiverLimit returns [receiver.ErrTooMany] if r would be one too many for its task: it neither replaces
// one nor is there capacity. It is a check before the message is accepted, not a guarantee: concurrent messages may each
// add one.
func checkReceiverLimit(ctx context.Context, receivers *receiver.Store, id agentsvc.TaskID, r *receiver.Receiver) error {
	if r == nil {
		return nil
	}
	all, err := receivers.List(ctx, id)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, receiver.Receiver.IsStanding)
	for _, there := range all {
		if there.ID == r.ID || r.ID == "" && there.ID == string(id) {
			return nil
		}
	}
	if len(all) >= receiver.MaxPerTask {
		return receiver.ErrTooMany
	}
	return nil
}
