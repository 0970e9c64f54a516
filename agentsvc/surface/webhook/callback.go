package webhook

import (
	"encoding/json"

	"stoa/agentsvc"
	"stoa/agentsvc/notify"
)

// callbackFormat is the name under which a callback's receiver is stored ([receiver.Receiver.Format]); it is in the
// database and must not change.
const callbackFormat = "webhook"

// Formats are the bodies of callbacks. A callback is sent once, when the task has ended, with the same body that a
// sender that waited would have received.
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
