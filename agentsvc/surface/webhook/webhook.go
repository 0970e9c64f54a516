// Package webhook implements the endpoints through which other services start agents (docs/triggers.md): a delivery
// to the path of an agent's trigger, by default /webhooks/ and the agent's name, is verified by its signature and becomes
// a message to that agent. GET /triggers shows an app's operators its webhooks and schedules.
//
// A delivery passes through handleDelivery: find the webhook, verify the signature while the body is read, build
// the message from the body, submit it under the delivery's key, and answer with the outcome. The key follows from
// the id that the sender gave the delivery; it makes a repeated one answer with the task of the first one. The caller
// of a delivery has no credential: it acts as the trigger's own owner (trigger.TaskOwner), only after the signature is
// verified.
//
// wire.go holds the response types, callback.go encodes what is posted to a callback URL, triggers.go lists the
// triggers.
package webhook

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/trigger"
	"stoa/authz"
	"stoa/tenancy/db"
)

// Options configure the endpoints. DB is required.
type Options struct {
	DB *db.DB // holds the state of the schedules and the last starts
	// OnDelivery is called with the app and the outcome of each delivery to a webhook that exists: started,
	// repeated, unsigned, refused (by a limit or a budget), invalid or failed. It feeds a metric. nil = it is not
	// called.
	OnDelivery func(app, outcome string)
	// Log is where a start that could not be recorded is logged; nil = [slog.Default].
	Log *slog.Logger
}

// Routes returns the endpoints. A webhook has one path, which may be any that no route has, and several methods; whether
// its configuration allows the method is checked by findWebhook.
func Routes(o Options) []surface.Route {
	if o.OnDelivery == nil {
		o.OnDelivery = func(string, string) {}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	h := handler{o.DB, o.OnDelivery, &startRecorder{db: o.DB, log: o.Log, unsignedAt: map[hookKey]time.Time{}}}
	routes := []surface.Route{
		{Method: http.MethodGet, Pattern: "/triggers", Kind: surface.Tenant, Scope: authz.TasksRead, Serve: h.handleListTriggers},
		{Method: http.MethodGet, Pattern: "/triggers/{agent}/starts", Kind: surface.Tenant, Scope: authz.TasksRead, Serve: h.handleListStarts},
		{Method: http.MethodPost, Pattern: "/triggers/{agent}:run", Kind: surface.Tenant, Serve: h.handleRunSchedule, Idempotent: true},
	}
	// Signed routes skip the credential check: the handler verifies the signature. NoDeadline: a webhook may be
	// configured to wait for its result.
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodGet} {
		routes = append(routes, surface.Route{Method: method, Pattern: "/webhooks/{webhook}", Kind: surface.Tenant, Signed: true, NoDeadline: true, Serve: h.handleDelivery})
	}
	return routes
}

// handler holds the dependencies of the handlers; read-only.
type handler struct {
	db           *db.DB
	countOutcome func(app, outcome string) // Options.OnDelivery, never nil
	starts       *startRecorder
}

// handleDelivery accepts one delivery and answers with its outcome. A repeated delivery has the header
// Idempotent-Replayed.
func (h handler) handleDelivery(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	hook, err := findWebhook(w, r, v)
	if err != nil {
		return err
	}
	t, repeated, err := submitDelivery(r, v, hook)
	outcome := deliveryOutcome(repeated, err)
	h.countOutcome(v.App.Name, outcome)
	h.starts.recordStart(r.Context(), v.App.ID, hook.Agent, newStart(trigger.DeliveryStart, outcome, t.ID, err))
	if err != nil {
		return err
	}
	if repeated {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	status, body := newDeliveryResponse(t, hook.ResultTimeout > 0)
	return response.WriteJSON(w, status, body)
}

// findWebhook returns the app's webhook of the path. It returns [apierror.ErrNoWebhook], or a 405 error and sets Allow.
func findWebhook(w http.ResponseWriter, r *http.Request, v *surface.Request) (*runtime.Webhook, error) {
	hook := v.Runtime.Webhooks()[v.Path()]
	switch {
	case hook == nil:
		return nil, apierror.ErrNoWebhook
	case !slices.Contains(hook.Methods, r.Method):
		w.Header()["Allow"] = hook.Methods
		return nil, apierror.NewMethodError(r.Method, hook.Methods)
	}
	return hook, nil
}

// submitDelivery verifies a delivery and submits its message; repeated reports that the delivery was accepted before.
func submitDelivery(r *http.Request, v *surface.Request, hook *runtime.Webhook) (t agentsvc.Task, repeated bool, err error) {
	d, err := receiveDelivery(r, v, hook)
	if err != nil {
		return t, false, err
	}
	return submitOnce(r.Context(), v, hook, d)
}

// deliveryOutcome returns the outcome of a delivery, one of those that Options.OnDelivery lists.
func deliveryOutcome(repeated bool, err error) string {
	switch {
	case err == nil && repeated:
		return "repeated"
	case err == nil:
		return "started"
	case errors.Is(err, agentsvc.CodeUnsigned):
		return "unsigned"
	case errors.Is(err, agentsvc.CodeExhausted):
		return "refused"
	case errors.Is(err, agentsvc.CodeInvalid), errors.Is(err, apierror.CodeContentType):
		return "invalid"
	}
	return "failed"
}
