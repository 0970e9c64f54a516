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

// Given is what the client gave, nil where it gave nothing.
func (p *PushConfig) Given() json.RawMessage {
	for _, given := range []json.RawMessage{p.Task, p.TaskSnake, p.Config, p.ConfigSnake, p.Notification, p.Snake} {
		if len(given) > 0 && string(given) != "null" {
			return given
		}
	}
	return nil
}

// Notifies reports whether callers can have addresses of theirs told of their tasks.
func (v *Visit) Notifies() bool { return v.house.Desk() != nil && v.house.Pushes() }

// Desk returns what makes receivers of addresses. It returns [ErrNoPush] where nobody is told.
func (v *Visit) Desk() (*notify.Desk, error) {
	if v.Notifies() {
		return v.house.Desk(), nil
	}
	return nil, ErrNoPush
}

// Receiver returns an address as a receiver of a task of the caller's. It returns [ErrNoPush], or what is wrong with the address.
func (v *Visit) Receiver(id, form string, a notify.Address) (*store.Receiver, error) {
	d, err := v.Desk()
	if err != nil {
		return nil, err
	}
	if err := CheckID("id", id); err != nil {
		return nil, err
	}
	r, err := d.Receiver(v.Principal.Owner(), id, form, a)
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// Notify has r, which may be nil, told of the turn that sub opens. What only decides about a turn opens none.
func Notify(sub *task.Submission, r *store.Receiver) error {
	if r != nil && len(sub.Rulings) > 0 {
		return agentsvc.Invalid("configuration", "a push notification config does not go with a decision or a credential: set it by itself")
	}
	sub.Receiver = r
	return nil
}

// Own returns the caller's reach over its own tasks of an agent that it may call, whatever else it may do: where a task is told
// of is its owner's business.
func (v *Visit) Own(ctx context.Context, agent string) (task.Reach, error) {
	if err := v.Use(ctx, authz.AgentsCall, agent, ""); err != nil {
		return task.Reach{}, err
	}
	owner := v.Principal.Owner()
	return task.Reach{Agents: []string{agent}, Owner: &owner}, nil
}
