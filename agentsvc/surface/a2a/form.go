package a2a

import (
	"encoding/json"

	"stoa/agentsvc"
	"stoa/agentsvc/notify"
)

// The forms in which each version's clients are told of their tasks.
const (
	Form10 = "a2a/1.0"
	Form03 = "a2a/0.3"
)

// Forms are they: version 1.0 tells of each status and artifact as a stream does, 0.3 the task as it stands after it, without
// its history.
var Forms = map[string]notify.Form{
	Form10: {Tells: tells, Body: func(t agentsvc.Task, ev agentsvc.Event) ([]byte, error) {
		return encoded(v10.event(NewTeller(t, true).Event(ev), false))
	}},
	Form03: {Tells: tells, Whole: true, Body: func(t agentsvc.Task, _ agentsvc.Event) ([]byte, error) {
		none := 0
		return encoded(v03.task(NewTask(t, &none, true)))
	}},
}

func tells(ev agentsvc.Event) bool { return ev.Status != nil || ev.Artifact != nil }

func encoded(body any, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(body)
}
