package task

import (
	"context"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
)

// SetReceiver has r told of what happens to its task from now on, and returns it as it is kept. Of tasks out of reach, as of
// those that are not there, it returns [agentsvc.ErrNotFound]; where a task has as many as it may have, [store.ErrTooManyReceivers].
func (s *Service) SetReceiver(ctx context.Context, visibility Visibility, r store.Receiver) (store.Receiver, error) {
	if _, err := s.findTask(ctx, visibility, r.Task, store.TaskParts{}); err != nil {
		return r, err
	}
	if r.ID == "" {
		r.ID = string(r.Task)
	}
	return r, s.store.SetReceiver(ctx, r, s.newReceiverEntries(visibility, "notification.set", r.Task, r.ID)...)
}

// ListReceivers returns those who are told of a task, by id. It returns [agentsvc.ErrNotFound] for a task out of reach.
func (s *Service) ListReceivers(ctx context.Context, visibility Visibility, id agentsvc.TaskID) ([]store.Receiver, error) {
	if _, err := s.findTask(ctx, visibility, id, store.TaskParts{}); err != nil {
		return nil, err
	}
	return s.store.ListReceivers(ctx, id)
}

// DropReceiver has a receiver told no more, which may be so already. It returns [agentsvc.ErrNotFound] for a task out of reach.
func (s *Service) DropReceiver(ctx context.Context, visibility Visibility, id agentsvc.TaskID, receiver string) error {
	if _, err := s.findTask(ctx, visibility, id, store.TaskParts{}); err != nil {
		return err
	}
	return s.store.DeleteReceiver(ctx, id, receiver, s.newReceiverEntries(visibility, "notification.drop", id, receiver)...)
}

// checkReceiverLimit returns [store.ErrTooManyReceivers] if a task has as many receivers as it may have, and r is not in place of one.
func (s *Service) checkReceiverLimit(ctx context.Context, id agentsvc.TaskID, r *store.Receiver) error {
	if r == nil {
		return nil
	}
	all, err := s.store.ListReceivers(ctx, id)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, store.Receiver.IsStanding)
	for _, there := range all {
		if there.ID == r.ID || r.ID == "" && there.ID == string(id) {
			return nil
		}
	}
	if len(all) >= store.MaxReceivers {
		return store.ErrTooManyReceivers
	}
	return nil
}
