package ops

import (
	"context"
	"net/http"
	"strconv"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/idempotency"
	"stoa/agentsvc/surface/response"
	"stoa/tenancy/db"
)

// mutation is one admin request that changes something.
type mutation struct {
	// r is the request; its body has been read into body.
	r *http.Request
	// actor is the operator's name in the audit trail.
	actor string
	body  []byte // the whole request body, "" = none
	// dryRun says to validate and answer as if the change were made, without writing anything.
	dryRun bool
}

// appName returns the path parameter app, "" on routes without one.
func (o *mutation) appName() string { return surface.PathParam(o.r, "app") }

// decodeBody decodes the body into v; unknown members are errors. With optional, an empty body leaves v unchanged.
func (o *mutation) decodeBody(v any, optional bool) error {
	if optional && len(o.body) == 0 {
		return nil
	}
	return decode.JSON(o.body, v, true)
}

// parseDryRun returns the query parameter dry_run. Only the routes that list it in Query can have it.
func (o *mutation) parseDryRun() (bool, error) {
	switch o.r.URL.Query().Get("dry_run") {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, agentsvc.NewInvalidError("dry_run", "must be true or false")
}

// mutationResult is the response of a mutation.
type mutationResult struct {
	status int
	body   any // nil = no body (204)
	// replayBody is the body for a repetition under the same Idempotency-Key. It is set where body contains a
	// secret, such as a new API key: responses are stored for repetitions, and a secret must not be stored in clear
	// text. nil = body.
	replayBody any
	// appID is the app that the response describes; the stored response is deleted together with that app. "" =
	// none.
	appID    db.ID
	revision int64 // sent as ETag; 0 = no ETag
}

// newMutationHandler returns the HTTP handler of a mutation. The route must be of kind Admin and Idempotent:
// package surface then claims the Idempotency-Key before the handler runs and stores its response for repetitions.
// A mutation that returns an error is not stored, so the request may be sent again under the same key.
func newMutationHandler(do func(ctx context.Context, o *mutation) (mutationResult, error)) surface.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		o := &mutation{r: r, actor: surface.OperatorOf(r).ActorName()}
		var err error
		if o.body, err = surface.ReadBody(r); err != nil {
			return err
		}
		if o.dryRun, err = o.parseDryRun(); err != nil {
			return err
		}
		out, err := do(r.Context(), o)
		if err != nil {
			return err
		}
		// Set before the response is written: the recorder stores the response when the handler returns.
		if err := idempotency.SetReplay(w, out.replayBody, out.appID); err != nil {
			return err
		}
		return out.writeResult(w)
	}
}

// writeResult writes the response with the revision as a strong ETag, which clients return in If-Match.
func (out mutationResult) writeResult(w http.ResponseWriter) error {
	if out.revision > 0 {
		w.Header().Set("ETag", strconv.Quote(strconv.FormatInt(out.revision, 10)))
	}
	if out.body == nil {
		w.WriteHeader(out.status)
		return nil
	}
	return response.WriteJSON(w, out.status, out.body)
}
