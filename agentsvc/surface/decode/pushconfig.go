package decode

import "encoding/json"

// PushConfig is the push notification config that comes with a message, under each name that a version of A2A or a
// client has for it. Embed it in the request's type.
type PushConfig struct {
	Task         json.RawMessage `json:"taskPushNotificationConfig"`
	TaskSnake    json.RawMessage `json:"task_push_notification_config"`
	Config       json.RawMessage `json:"pushNotificationConfig"`
	ConfigSnake  json.RawMessage `json:"push_notification_config"`
	Notification json.RawMessage `json:"pushNotification"`
	Snake        json.RawMessage `json:"push_notification"`
}

// FirstConfig returns the config that the client sent, nil if it sent none.
func (p *PushConfig) FirstConfig() json.RawMessage {
	for _, given := range []json.RawMessage{p.Task, p.TaskSnake, p.Config, p.ConfigSnake, p.Notification, p.Snake} {
		if len(given) > 0 && string(given) != "null" {
			return given
		}
	}
	return nil
}
