package surface

import (
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/notify"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// SupportsPush reports whether the app sends push notifications to addresses of callers.
func (v *Request) SupportsPush() bool { return v.runtime.Notifier() != nil && v.runtime.PushEnabled() }

// Notifier returns the app's notifier. It returns [ErrNoPush] if the app has no push notifications.
func (v *Request) Notifier() (*notify.Notifier, error) {
	if v.SupportsPush() {
		return v.runtime.Notifier(), nil
	}
	return nil, apierror.ErrNoPush
}

// NewReceiver returns a receiver of notifications about a task of the caller, in the protocol's format. It returns
// [ErrNoPush], or an [*agentsvc.InvalidError] for an id or an address that is not allowed. It stores nothing.
func (v *Request) NewReceiver(id, format string, a notify.Address) (*store.Receiver, error) {
	d, err := v.Notifier()
	if err != nil {
		return nil, err
	}
	if err := decode.CheckID("id", id); err != nil {
		return nil, err
	}
	r, err := d.NewReceiver(v.Principal.Owner(), id, format, a)
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// SetReceiver makes r, which may be nil, a receiver of notifications from the turn on that sub starts. A decision or a
// credential starts no turn: with r it is an [*agentsvc.InvalidError].
func SetReceiver(sub *task.Submission, r *store.Receiver) error {
	if r != nil && len(sub.Decisions) > 0 {
		return agentsvc.NewInvalidError("configuration", "a push notification config does not go with a decision or a credential: set it by itself")
	}
	sub.Receiver = r
	return nil
}

// ResolveOwnVisibility returns the visibility of the caller's own tasks of an agent that it may call. A caller who may
// see all tasks of the app does not get them here: only the owner of a task manages its receivers.
func (v *Request) ResolveOwnVisibility(ctx context.Context, agent string) (task.Visibility, error) {
	if err := v.AuthorizeAgent(ctx, authz.AgentsCall, agent, ""); err != nil {
		return task.Visibility{}, err
	}
	owner := v.Principal.Owner()
	return task.Visibility{Agents: []string{agent}, Owner: &owner}, nil
}
