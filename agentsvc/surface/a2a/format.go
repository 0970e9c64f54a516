package a2a

import (
	"encoding/json"

	"stoa/agentsvc"
	"stoa/agentsvc/notify"
)

// The forms in which each version's clients are told of their tasks.
const (
	Format10 = "a2a/1.0"
	Format03 = "a2a/0.3"
)

// Formats are they: version 1.0 tells of each status and artifact as a stream does, 0.3 the task as it stands after it, without
// its history.
var Formats = map[string]notify.Format{
	Format10: {ShouldSend: isNotified, EncodeBody: func(t agentsvc.Task, ev agentsvc.Event) ([]byte, error) {
		return marshalBody(codec10.encodeEvent(NewEventEncoder(t, true).EncodeEvent(ev), false))
	}},
	Format03: {ShouldSend: isNotified, IncludesTask: true, EncodeBody: func(t agentsvc.Task, _ agentsvc.Event) ([]byte, error) {
		none := 0
		return marshalBody(codec03.encodeTask(NewTask(t, &none, true)))
	}},
}

func isNotified(ev agentsvc.Event) bool { return ev.Status != nil || ev.Artifact != nil }

func marshalBody(body any, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(body)
}
