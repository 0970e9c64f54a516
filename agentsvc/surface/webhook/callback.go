package webhook

import (
	"encoding/json"

	"stoa/agentsvc"
	"stoa/agentsvc/notify"
)

// callbackFormat is what the address is told in that a delivery's sender wants the result at.
const callbackFormat = "webhook"

// Formats are it: once, when the task has ended, with what a sender would be answered who had waited so long.
var Formats = map[string]notify.Format{
	callbackFormat: {
		ShouldSend: func(ev agentsvc.Event) bool { return ev.Status != nil && ev.Status.State.IsTerminal() },
		EncodeBody: func(t agentsvc.Task, ev agentsvc.Event) ([]byte, error) {
			t.Status = *ev.Status
			_, a := newDeliveryResponse(t, true)
			return json.Marshal(a)
		},
	},
}
