package task

import (
	"context"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/receiver"
	"stoa/tenancy/audit"
)

// SetReceiver registers r for the events of its task from now on, or replaces the receiver with its id, and returns
// it as stored. An empty id becomes the task's. from is for the audit entry. It returns [agentsvc.ErrNotFound] for a
// task that is not visible, and [receiver.ErrTooMany].
func (s *Service) SetReceiver(ctx context.Context, visibility Visibility, from audit.Origin, r receiver.Receiver) (receiver.Receiver, error) {
	if _, err := s.findTask(ctx, visibility, r.Task, store.TaskParts{}); err != nil {
		return r, err
	}
	if r.ID == "" {
		r.ID = string(r.Task)
	}
	return r, s.store.Receivers.Set(ctx, r, s.newReceiverEntries(visibility, from, "notification.set", r.Task, r.ID)...)
}

// ListReceivers returns the receivers of a task ordered by id, or [agentsvc.ErrNotFound] for a task that is not
// visible.
func (s *Service) ListReceivers(ctx context.Context, visibility Visibility, id agentsvc.TaskID) ([]receiver.Receiver, error) {
	if _, err := s.findTask(ctx, visibility, id, store.TaskParts{}); err != nil {
		return nil, err
	}
	return s.store.Receivers.List(ctx, id)
}

// DropReceiver removes a receiver. It is no error if there is none; [agentsvc.ErrNotFound] is for a task that is not
// visible.
func (s *Service) DropReceiver(ctx context.Context, visibility Visibility, from audit.Origin, id agentsvc.TaskID, receiver string) error {
	if _, err := s.findTask(ctx, visibility, id, store.TaskParts{}); err != nil {
		return err
	}
	return s.store.Receivers.Delete(ctx, id, receiver, s.newReceiverEntries(visibility, from, "notification.drop", id, receiver)...)
}

// checkReceiverLimit returns [receiver.ErrTooMany] if r would be one too many for its task: it neither replaces
// one nor is there capacity. It is a check before the message is accepted, not a guarantee: concurrent messages may each
// add one.
func (s *Service) checkReceiverLimit(ctx context.Context, id agentsvc.TaskID, r *receiver.Receiver) error {
	if r == nil {
		return nil
	}
	all, err := s.store.Receivers.List(ctx, id)
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
