package surface

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

// keyHeader carries the key under which a call takes effect once, however often it is sent.
const keyHeader = "Idempotency-Key"

// IdempotencyKey returns the key of a request, "" if it has none. It returns an [agentsvc.InvalidError] for one that
// cannot be.
func IdempotencyKey(r *http.Request) (string, error) {
	values, keyed := r.Header[keyHeader]
	if !keyed {
		return "", nil
	}
	return values[0], tenancy.CheckKey(values[0])
}

// once carries out a request that changes something. With an Idempotency-Key it takes effect once: the same request
// again is told what the first was told. One that came to nothing may be sent again.
func (s *Server) once(rec *record, w http.ResponseWriter, r *http.Request, serve Handler) error {
	key, err := IdempotencyKey(r)
	if err != nil {
		return err
	}
	if key == "" || r.URL.Query().Get("dry_run") == "true" {
		return serve(w, r)
	}
	body, err := ReadBody(r)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return s.carryOut(rec, w, r, tenancy.Request{Key: key, Method: r.Method, Path: r.URL.RequestURI(), Body: body}, serve)
}

// carryOut does what the request says, unless that has been done under its key, and keeps what came of it.
func (s *Server) carryOut(rec *record, w http.ResponseWriter, r *http.Request, req tenancy.Request, serve Handler) error {
	req.Actor = rec.operator.Name()
	if v := rec.visit; v != nil {
		req.Actor = fmt.Sprintf("%s/%q/%q", v.App.ID, v.Principal.Issuer, v.Principal.Subject)
	}
	claim, known, err := s.options.Apps.Begin(r.Context(), req)
	switch {
	case err != nil:
		return err
	case known != nil:
		return replay(w, known)
	}
	to := &keeper{ResponseWriter: w}
	if rec.visit != nil {
		to.kept.App = rec.visit.App.ID
	}
	rec.keeper = to
	err = serve(to, r)
	keep, cancel := Afterwards(r.Context())
	defer cancel()
	if err != nil {
		// The key comes free by itself after a while if this does not succeed.
		_ = claim.Abandon(keep)
		return err
	}
	// What came of it was told even if a repetition could not be told.
	_ = claim.Finish(keep, to.answer())
	return nil
}

// replay answers a repetition.
func replay(w http.ResponseWriter, known *tenancy.Answer) error {
	w.Header().Set("Idempotent-Replayed", "true")
	if len(known.Body) == 0 {
		w.WriteHeader(known.Status)
		return nil
	}
	return WriteJSON(w, known.Status, json.RawMessage(known.Body))
}

// keeper remembers an answer on its way to the client.
type keeper struct {
	http.ResponseWriter
	kept tenancy.Answer
	said bytes.Buffer
}

// Instead has a repetition of r told v in the place of what the handler answers, since that holds a secret, and has it
// forgotten with the app it tells of, which may be "".
func Instead(r *http.Request, v any, app db.ID) error {
	k := recordOf(r).keeper
	if k == nil {
		return nil
	}
	k.kept.App = app
	if v == nil {
		return nil
	}
	var err error
	k.kept.Body, err = json.Marshal(v)
	return err
}

func (k *keeper) WriteHeader(status int) {
	k.kept.Status = status
	k.ResponseWriter.WriteHeader(status)
}

func (k *keeper) Write(b []byte) (int, error) {
	k.said.Write(b)
	return k.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (k *keeper) Unwrap() http.ResponseWriter { return k.ResponseWriter }

func (k *keeper) answer() tenancy.Answer {
	if k.kept.Status == 0 {
		k.kept.Status = http.StatusOK
	}
	if k.kept.Body == nil {
		k.kept.Body = bytes.TrimSpace(k.said.Bytes())
	}
	return k.kept
}

// Once returns m as a method that takes effect once under an Idempotency-Key.
func Once(m Method) Method {
	return func(w http.ResponseWriter, r *http.Request, c *RPC) error {
		key, err := IdempotencyKey(r)
		switch {
		case err != nil:
			return err
		case key == "":
			return m(w, r, c)
		}
		body := fmt.Appendf(nil, "%s %s %s", c.id, c.Method, c.Params)
		rec := recordOf(r)
		return rec.visit.server.carryOut(rec, w, r, tenancy.Request{Key: key, Method: r.Method, Path: r.URL.RequestURI(), Body: body},
			func(w http.ResponseWriter, r *http.Request) error {
				c.w = w
				return m(w, r, c)
			})
	}
}
