package webhook

import (
	"encoding/json"

	"stoa/agentsvc"
	"stoa/agentsvc/notify"
)

// form is what the address is told in that a delivery's sender wants the result at.
const form = "webhook"

// Forms are it: once, when the task has ended, with what a sender would be answered who had waited so long.
var Forms = map[string]notify.Form{
	form: {
		Tells: func(ev agentsvc.Event) bool { return ev.Status != nil && ev.Status.State.Terminal() },
		Body: func(t agentsvc.Task, ev agentsvc.Event) ([]byte, error) {
			t.Status = *ev.Status
			_, a := answerOf(t, true)
			return json.Marshal(a)
		},
	},
}
