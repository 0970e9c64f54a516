package a2a

import (
	"encoding/json"

	"stoa/agentsvc"
	"stoa/agentsvc/notify"
)

// The names under which a receiver's format is stored ([receiver.Receiver.Format]). They are in the database:
// changing one makes the stored receivers undeliverable.
const (
	Format10 = "a2a/1.0"
	Format03 = "a2a/0.3"
)

// Formats are the bodies of push notifications; package notify delivers them. A client of version 1.0 receives each
// status and artifact as a stream would send it (with resumed set, so that no snapshot comes first); a client of
// 0.3 receives the whole task as it stands after the event, without its history.
var Formats = map[string]notify.Format{
	Format10: {ShouldSend: isNotified, EncodeBody: func(t agentsvc.Task, ev agentsvc.Event) ([]byte, error) {
		return marshalBody(codec10.encodeEvent(NewEventEncoder(t, true).EncodeEvent(ev), false))
	}},
	Format03: {ShouldSend: isNotified, IncludesTask: true, EncodeBody: func(t agentsvc.Task, _ agentsvc.Event) ([]byte, error) {
		none := 0
		return marshalBody(codec03.encodeTask(NewTask(t, &none, true)))
	}},
}

// isNotified reports whether ev causes a notification: statuses and artifacts do, deltas and messages do not.
func isNotified(ev agentsvc.Event) bool { return ev.Status != nil || ev.Artifact != nil }

// marshalBody adapts the result of an encode function to [notify.Format].
func marshalBody(body any, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(body)
}
