// Package mutation is how the admin API carries out a request that changes something: [NewHandler] reads its body and
// its dry_run, calls the endpoint's function and writes its [Result] with status, ETag and body. The conditions of
// requests ([ParseIfMatch]) and the forms of a configuration ([WriteConfig]) are also those of the tenant API.
package mutation

import (
	"context"
	"net/http"
	"strconv"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/idempotency"
	"stoa/agentsvc/surface/response"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// Request is one admin request that changes something.
type Request struct {
	// HTTP is the request; its body has been read into Body.
	HTTP *http.Request
	// Actor is the operator, for the audit trail.
	Actor audit.Actor
	body  []byte // the whole request body, "" = none
	// DryRun says to validate and answer as if the change were made, without writing anything.
	DryRun bool
	// IfMatch are the tags of the header If-Match, see [ParseIfMatch].
	IfMatch []string
}

// AppName returns the path parameter app, "" on routes without one.
func (r *Request) AppName() string { return surface.PathParam(r.HTTP, "app") }

// DecodeBody decodes the body into v; unknown members are errors. With optional, an empty body leaves v unchanged.
func (r *Request) DecodeBody(v any, optional bool) error {
	if optional && len(r.body) == 0 {
		return nil
	}
	return decode.JSON(r.body, v, true)
}

// ParseDryRun returns the query parameter dry_run. Only the routes that list it in Query can have it.
func ParseDryRun(r *http.Request) (bool, error) { return decode.ParseBool(r.URL.Query(), "dry_run") }

// Result is the response of a mutation.
type Result struct {
	Status int
	Body   any // nil = no body (204)
	// ReplayBody is the body for a repetition under the same Idempotency-Key. It is set where Body contains a
	// secret, such as a new API key: responses are stored for repetitions, and a secret must not be stored in clear
	// text. nil = Body.
	ReplayBody any
	// AppID is the app that the response describes; the stored response is deleted together with that app. "" =
	// none.
	AppID db.ID
	Tag   string // sent as ETag; "" = no ETag
	// CreatedID is what names the resource that was created below the path of the request; it is sent as Location. "" =
	// none was.
	CreatedID string
}

// NewHandler returns the HTTP handler of a mutation. The route must be of kind Admin and Idempotent:
// package surface then claims the Idempotency-Key before the handler runs and stores its response for repetitions.
// A mutation that returns an error is not stored, so the request may be sent again under the same key.
//
// It refuses If-Match: a condition that is not checked must not seem to hold. [NewGuardedHandler] is for the mutations
// that check it.
func NewHandler(do func(ctx context.Context, o *Request) (Result, error)) surface.Handler {
	return NewGuardedHandler(func(ctx context.Context, o *Request) (Result, error) {
		if o.IfMatch != nil {
			return Result{}, agentsvc.NewInvalidError("If-Match", "is not supported here: leave it out")
		}
		return do(ctx, o)
	})
}

// NewGuardedHandler is [NewHandler] for a mutation that is only made in a state of [Request].IfMatch.
func NewGuardedHandler(do func(ctx context.Context, o *Request) (Result, error)) surface.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		o := &Request{HTTP: r, Actor: surface.ActorOf(r)}
		var err error
		if o.body, err = surface.ReadBody(r); err != nil {
			return err
		}
		if o.DryRun, err = ParseDryRun(r); err != nil {
			return err
		}
		if o.IfMatch, err = ParseIfMatch(r); err != nil {
			return err
		}
		out, err := do(r.Context(), o)
		if err != nil {
			return err
		}
		// Set before the response is written: the recorder stores the response when the handler returns.
		if err := idempotency.SetReplay(w, out.ReplayBody, out.AppID); err != nil {
			return err
		}
		if out.CreatedID != "" {
			w.Header().Set("Location", surface.CreatedPath(r, out.CreatedID))
		}
		return out.WriteResult(w)
	}
}

// WriteResult writes the response with its tag as a strong ETag, which clients return in If-Match.
func (r Result) WriteResult(w http.ResponseWriter) error {
	if r.Tag != "" {
		w.Header().Set("ETag", strconv.Quote(r.Tag))
	}
	if r.Body == nil {
		w.WriteHeader(r.Status)
		return nil
	}
	return response.WriteJSON(w, r.Status, r.Body)
}
