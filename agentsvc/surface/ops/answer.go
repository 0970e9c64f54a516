package ops

import (
	"context"
	"net/http"
	"strconv"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
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

// act returns the handler of a call that changes something.
func act(do func(ctx context.Context, o *order) (answer, error)) surface.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		o := &order{r: r, actor: surface.OperatorOf(r).Name()}
		var err error
		if o.body, err = surface.ReadBody(r); err != nil {
			return err
		}
		if o.dry, err = o.dryRun(); err != nil {
			return err
		}
		out, err := do(r.Context(), o)
		if err != nil {
			return err
		}
		if err := surface.Instead(r, out.again, out.app); err != nil {
			return err
		}
		return out.write(w)
	}
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
