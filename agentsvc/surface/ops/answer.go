package ops

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// order is a call that changes something.
type order struct {
	r     *http.Request
	actor string
	body  []byte
	dry   bool // only tell what would come of it
}

// app returns the name of the app that the path names.
func (o *order) app() string { return surface.Param(o.r, "app") }

// decode reads the body, which may be missing where it is optional, into v.
func (o *order) decode(v any, optional bool) error {
	if optional && len(o.body) == 0 {
		return nil
	}
	return surface.DecodeJSON(o.body, v, true)
}

// dryRun reports whether the caller only wants to know what would come of it.
func (o *order) dryRun() (bool, error) {
	switch o.r.URL.Query().Get("dry_run") {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, agentsvc.Invalid("dry_run", "must be true or false")
}

// answer is what an order came to.
type answer struct {
	status   int
	body     any   // nil = none
	again    any   // what a repetition is told in its place, where body holds a secret
	app      db.ID // that the answer tells of, with which it is forgotten
	revision int64 // 0 = none is told
}

// once returns the handler of a call that changes something. With an Idempotency-Key it takes effect once, however
// often it is sent.
func (a admin) once(do func(ctx context.Context, o *order) (answer, error)) surface.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		o := &order{r: r, actor: surface.OperatorOf(r).Subject}
		var err error
		if o.body, err = surface.ReadBody(r); err != nil {
			return err
		}
		if o.dry, err = o.dryRun(); err != nil {
			return err
		}
		key, keyed := r.Header["Idempotency-Key"]
		if !keyed || o.dry {
			out, err := do(r.Context(), o)
			if err != nil {
				return err
			}
			return out.write(w)
		}
		claim, known, err := a.apps.Begin(r.Context(), tenancy.Request{
			Actor: o.actor, Key: key[0], Method: r.Method, Path: r.URL.RequestURI(), Body: o.body,
		})
		switch {
		case err != nil:
			return err
		case known != nil:
			return replay(w, known)
		}
		return a.carryOut(w, o, claim, do)
	}
}

// carryOut does what the order says and keeps what came of it. An order that came to nothing may be sent again.
func (a admin) carryOut(w http.ResponseWriter, o *order, claim *tenancy.Claim, do func(context.Context, *order) (answer, error)) error {
	ctx := o.r.Context()
	out, err := do(ctx, o)
	keep, cancel := surface.Afterwards(ctx)
	defer cancel()
	if err != nil {
		// The key comes free by itself after a while if this does not succeed.
		_ = claim.Abandon(keep)
		return err
	}
	kept, err := out.kept()
	if err != nil {
		return err
	}
	// What came of it is told even if a repetition could not be told.
	_ = claim.Finish(keep, kept)
	return out.write(w)
}

// kept returns the answer as it is kept for a repetition: without secrets.
func (out answer) kept() (tenancy.Answer, error) {
	kept := tenancy.Answer{Status: out.status, App: out.app}
	body := out.body
	if out.again != nil {
		body = out.again
	}
	if body == nil {
		return kept, nil
	}
	var err error
	kept.Body, err = json.Marshal(body)
	return kept, err
}

func (out answer) write(w http.ResponseWriter) error {
	if out.revision > 0 {
		w.Header().Set("ETag", strconv.Quote(strconv.FormatInt(out.revision, 10)))
	}
	if out.body == nil {
		w.WriteHeader(out.status)
		return nil
	}
	return surface.WriteJSON(w, out.status, out.body)
}

// replay answers a repetition.
func replay(w http.ResponseWriter, known *tenancy.Answer) error {
	w.Header().Set("Idempotent-Replayed", "true")
	if len(known.Body) == 0 {
		w.WriteHeader(known.Status)
		return nil
	}
	return surface.WriteJSON(w, known.Status, json.RawMessage(known.Body))
}
