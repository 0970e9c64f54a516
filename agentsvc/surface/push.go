package surface

import (
	"context"
	"encoding/json"

	"stoa/agentsvc"
	"stoa/agentsvc/notify"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// PushConfig is the address to be told of a task that comes with a message, under each name that a version or a client gives it.
type PushConfig struct {
	Task         json.RawMessage `json:"taskPushNotificationConfig"`
	TaskSnake    json.RawMessage `json:"task_push_notification_config"`
	Config       json.RawMessage `json:"pushNotificationConfig"`
	ConfigSnake  json.RawMessage `json:"push_notification_config"`
	Notification json.RawMessage `json:"pushNotification"`
	Snake        json.RawMessage `json:"push_notification"`
}

// FirstConfig is what the client gave, nil where it gave nothing.
func (p *PushConfig) FirstConfig() json.RawMessage {
	for _, given := range []json.RawMessage{p.Task, p.TaskSnake, p.Config, p.ConfigSnake, p.Notification, p.Snake} {
		if len(given) > 0 && string(given) != "null" {
			return given
		}
	}
	return nil
}

// SupportsPush reports whether callers can have addresses of theirs told of their tasks.
func (v *Request) SupportsPush() bool { return v.runtime.Notifier() != nil && v.runtime.PushEnabled() }

// Notifier returns what makes receivers of addresses. It returns [ErrNoPush] where nobody is told.
func (v *Request) Notifier() (*notify.Notifier, error) {
	if v.SupportsPush() {
		return v.runtime.Notifier(), nil
	}
	return nil, ErrNoPush
}

// NewReceiver returns an address as a receiver of a task of the caller's. It returns [ErrNoPush], or what is wrong with the address.
func (v *Request) NewReceiver(id, format string, a notify.Address) (*store.Receiver, error) {
	d, err := v.Notifier()
	if err != nil {
		return nil, err
	}
	if err := CheckID("id", id); err != nil {
		return nil, err
	}
	r, err := d.NewReceiver(v.Principal.Owner(), id, format, a)
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// SetReceiver has r, which may be nil, told of the turn that sub opens. What only decides about a turn opens none.
func SetReceiver(sub *task.Submission, r *store.Receiver) error {
	if r != nil && len(sub.Decisions) > 0 {
		return agentsvc.NewInvalidError("configuration", "a push notification config does not go with a decision or a credential: set it by itself")
	}
	sub.Receiver = r
	return nil
}

// ResolveOwnVisibility returns the caller's reach over its own tasks of an agent that it may call, whatever else it may do: where a task is told
// of is its owner's business.
func (v *Request) ResolveOwnVisibility(ctx context.Context, agent string) (task.Visibility, error) {
	if err := v.AuthorizeAgent(ctx, authz.AgentsCall, agent, ""); err != nil {
		return task.Visibility{}, err
	}
	owner := v.Principal.Owner()
	return task.Visibility{Agents: []string{agent}, Owner: &owner}, nil
}
