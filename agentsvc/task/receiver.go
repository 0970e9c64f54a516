package task

import (
	"context"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
)

// SetReceiver has r told of what happens to its task from now on, and returns it as it is kept. Of tasks out of reach, as of
// those that are not there, it returns [agentsvc.ErrNotFound]; where a task has as many as it may have, [store.ErrReceivers].
func (s *Service) SetReceiver(ctx context.Context, reach Reach, r store.Receiver) (store.Receiver, error) {
	if _, err := s.find(ctx, reach, r.Task, store.With{}); err != nil {
		return r, err
	}
	if r.ID == "" {
		r.ID = string(r.Task)
	}
	return r, s.store.SetReceiver(ctx, r, s.setBy(reach, "notification.set", r.Task, r.ID)...)
}

// Receivers returns those who are told of a task, by id. It returns [agentsvc.ErrNotFound] for a task out of reach.
func (s *Service) Receivers(ctx context.Context, reach Reach, id agentsvc.TaskID) ([]store.Receiver, error) {
	if _, err := s.find(ctx, reach, id, store.With{}); err != nil {
		return nil, err
	}
	return s.store.Receivers(ctx, id)
}

// DropReceiver has a receiver told no more, which may be so already. It returns [agentsvc.ErrNotFound] for a task out of reach.
func (s *Service) DropReceiver(ctx context.Context, reach Reach, id agentsvc.TaskID, receiver string) error {
	if _, err := s.find(ctx, reach, id, store.With{}); err != nil {
		return err
	}
	return s.store.DropReceiver(ctx, id, receiver, s.setBy(reach, "notification.drop", id, receiver)...)
}

// mayHave returns [store.ErrReceivers] if a task has as many receivers as it may have, and r is not in place of one.
func (s *Service) mayHave(ctx context.Context, id agentsvc.TaskID, r *store.Receiver) error {
	if r == nil {
		return nil
	}
	all, err := s.store.Receivers(ctx, id)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, store.Receiver.Standing)
	for _, there := range all {
		if there.ID == r.ID || r.ID == "" && there.ID == string(id) {
			return nil
		}
	}
	if len(all) >= store.MaxReceivers {
		return store.ErrReceivers
	}
	return nil
}
