// Package webhook is where other services start agents: a delivery to /webhooks/{webhook} is verified by its signature and
// becomes a message to the agent whose trigger listens there; the answer says what came of it. It also shows an app's operators
// what starts their agents without a caller.
//
// wire.go holds the shapes, callback.go is what is posted where the sender wants the result, triggers.go shows the triggers.
package webhook

import (
	"errors"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/app"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/task"
	"stoa/agentsvc/trigger"
	"stoa/authz"
	"stoa/ratelimit"
	"stoa/tenancy/db"
)

// Options tune the surface.
type Options struct {
	DB *db.DB // where the schedules stand
	// OnDelivery is told what came of each delivery to a webhook that there is: started, repeated, unsigned, refused (by a limit or
	// a budget), invalid or failed; nil = nobody wants to know.
	OnDelivery func(app, outcome string)
}

// Routes returns what the surface answers.
func Routes(o Options) []surface.Route {
	if o.OnDelivery == nil {
		o.OnDelivery = func(string, string) {}
	}
	h := handler{o.DB, o.OnDelivery}
	routes := []surface.Route{{Method: http.MethodGet, Pattern: "/triggers", Kind: surface.Tenant, Scope: authz.TasksRead, Query: []string{}, Serve: h.handleListTriggers}}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch} {
		routes = append(routes, surface.Route{Method: method, Pattern: "/webhooks/{webhook}", Kind: surface.Tenant, Signed: true, NoDeadline: true, Serve: h.handleDelivery})
	}
	return routes
}

type handler struct {
	db           *db.DB
	countOutcome func(app, outcome string)
}

// handleDelivery takes a delivery in.
func (h handler) handleDelivery(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	hook, err := v.FindWebhook(r.Method, "/webhooks/"+surface.PathParam(r, "webhook"))
	if err != nil {
		return err
	}
	t, repeated, err := submitDelivery(r, v, hook)
	h.countOutcome(v.App.Name, deliveryOutcome(repeated, err))
	if err != nil {
		return err
	}
	if repeated {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	status, body := newDeliveryResponse(t, hook.ResultTimeout > 0)
	return surface.WriteJSON(w, status, body)
}

// submitDelivery hands on what the sender of a request has proven to have sent.
func submitDelivery(r *http.Request, v *surface.Request, hook *app.Webhook) (t agentsvc.Task, repeated bool, err error) {
	id, body, err := v.ReceiveDelivery(r, hook)
	if err != nil {
		return t, false, err
	}
	return v.SubmitDelivery(r.Context(), hook, trigger.DeliveryKey(id, body), func(sub *task.Submission) error {
		text, err := hook.Input.BuildMessage(r.Header.Get("Content-Type"), body)
		if err != nil {
			return err
		}
		sub.Message.Parts, sub.Message.Metadata = []agentsvc.Part{agentsvc.TextPart(text)}, map[string]any{"trigger": "webhook"}
		sub.Receiver, err = v.NewCallbackReceiver(hook, callbackFormat, r.Header.Get("Content-Type"), body)
		return err
	})
}

// deliveryOutcome names what came of a delivery.
func deliveryOutcome(repeated bool, err error) string {
	var spent *agentsvc.BudgetExhaustedError
	var full *agentsvc.StorageLimitError
	var invalid *agentsvc.InvalidError
	switch {
	case err == nil && repeated:
		return "repeated"
	case err == nil:
		return "started"
	case errors.Is(err, trigger.ErrUnsigned):
		return "unsigned"
	case errors.Is(err, ratelimit.ErrExhausted), errors.As(err, &spent), errors.As(err, &full):
		return "refused"
	case errors.As(err, &invalid), errors.Is(err, surface.ErrContentType):
		return "invalid"
	}
	return "failed"
}
