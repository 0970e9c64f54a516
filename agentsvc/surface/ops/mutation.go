package ops

import (
	"context"
	"net/http"
	"strconv"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/tenancy/db"
)

// mutation is a call that changes something.
type mutation struct {
	r      *http.Request
	actor  string
	body   []byte
	dryRun bool // only tell what would come of it
}

// appName returns the name of the app that the path names.
func (o *mutation) appName() string { return surface.PathParam(o.r, "app") }

// decodeBody reads the body, which may be missing where it is optional, into v.
func (o *mutation) decodeBody(v any, optional bool) error {
	if optional && len(o.body) == 0 {
		return nil
	}
	return surface.DecodeJSON(o.body, v, true)
}

// parseDryRun reports whether the caller only wants to know what would come of it.
func (o *mutation) parseDryRun() (bool, error) {
	switch o.r.URL.Query().Get("dry_run") {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, agentsvc.NewInvalidError("dry_run", "must be true or false")
}

// mutationResult is what an order came to.
type mutationResult struct {
	status     int
	body       any   // nil = none
	replayBody any   // what a repetition is told in its place, where body holds a secret
	appID      db.ID // that the answer tells of, with which it is forgotten
	revision   int64 // 0 = none is told
}

// newMutationHandler returns the handler of a call that changes something.
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
		if err := surface.SetReplay(r, out.replayBody, out.appID); err != nil {
			return err
		}
		return out.writeResult(w)
	}
}

func (out mutationResult) writeResult(w http.ResponseWriter) error {
	if out.revision > 0 {
		w.Header().Set("ETag", strconv.Quote(strconv.FormatInt(out.revision, 10)))
	}
	if out.body == nil {
		w.WriteHeader(out.status)
		return nil
	}
	return surface.WriteJSON(w, out.status, out.body)
}
