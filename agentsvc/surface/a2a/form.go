package a2a

import (
	"encoding/json"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

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
	Form10: {Body: func(t agentsvc.Task, ev agentsvc.Event) ([]byte, error) {
		told := told(t, ev)
		if told == nil {
			return nil, nil
		}
		return encoded(v10.event(told, false))
	}},
	Form03: {Whole: true, Body: func(t agentsvc.Task, ev agentsvc.Event) ([]byte, error) {
		if told(t, ev) == nil {
			return nil, nil
		}
		none := 0
		return encoded(v03.task(NewTask(t, &none, true)))
	}},
}

// told returns ev where it is a status or an artifact, nil where it is not.
func told(t agentsvc.Task, ev agentsvc.Event) spec.Event {
	if ev.Status == nil && ev.Artifact == nil {
		return nil
	}
	return NewTeller(t, true).Event(ev)
}

func encoded(body any, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(body)
}
