// Package webhook is where other services start agents: a delivery to /webhooks/{webhook} is verified by its signature and
// becomes a message to the agent whose trigger listens there; the answer says what came of it. It also shows an app's operators
// what starts their agents without a caller.
//
// wire.go holds the shapes, callback.go is what is posted where the sender wants the result, list.go shows the triggers.
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
	// Count is told what came of each delivery to a webhook that there is: started, repeated, unsigned, refused (by a limit or
	// a budget), invalid or failed; nil = nobody wants to know.
	Count func(app, outcome string)
}

// Routes returns what the surface answers.
func Routes(o Options) []surface.Route {
	if o.Count == nil {
		o.Count = func(string, string) {}
	}
	h := hooks{o.DB, o.Count}
	routes := []surface.Route{{Method: http.MethodGet, Pattern: "/triggers", Kind: surface.Tenant, Scope: authz.TasksRead, Query: []string{}, Serve: h.list}}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch} {
		routes = append(routes, surface.Route{Method: method, Pattern: "/webhooks/{webhook}", Kind: surface.Tenant, Signed: true, Waits: true, Serve: h.receive})
	}
	return routes
}

type hooks struct {
	db    *db.DB
	count func(app, outcome string)
}

// receive takes a delivery in.
func (h hooks) receive(w http.ResponseWriter, r *http.Request) error {
	v := surface.VisitOf(r)
	hook, err := v.Webhook(r.Method, "/webhooks/"+surface.Param(r, "webhook"))
	if err != nil {
		return err
	}
	t, again, err := deliver(r, v, hook)
	h.count(v.App.Name, outcome(again, err))
	if err != nil {
		return err
	}
	if again {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	status, body := answerOf(t, hook.Waits > 0)
	return surface.WriteJSON(w, status, body)
}

// deliver hands on what the sender of a request has proven to have sent.
func deliver(r *http.Request, v *surface.Visit, hook *app.Webhook) (t agentsvc.Task, again bool, err error) {
	id, body, err := v.Receive(r, hook)
	if err != nil {
		return t, false, err
	}
	return v.Deliver(r.Context(), hook, trigger.Delivery(id, body), func(sub *task.Submission) error {
		said, err := hook.Input.Message(r.Header.Get("Content-Type"), body)
		if err != nil {
			return err
		}
		sub.Message.Parts, sub.Message.Metadata = []agentsvc.Part{agentsvc.TextPart(said)}, map[string]any{"trigger": "webhook"}
		sub.Receiver, err = v.CallBack(hook, form, r.Header.Get("Content-Type"), body)
		return err
	})
}

// outcome names what came of a delivery.
func outcome(again bool, err error) string {
	var spent *agentsvc.ExhaustedError
	var full *agentsvc.StoredError
	var invalid *agentsvc.InvalidError
	switch {
	case err == nil && again:
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
