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

// idempotencyHeader carries the key under which a call takes effect once, however often it is sent.
const idempotencyHeader = "Idempotency-Key"

// IdempotencyKey returns the key of a request, "" if it has none. It returns an [agentsvc.InvalidError] for one that
// cannot be.
func IdempotencyKey(r *http.Request) (string, error) {
	values, keyed := r.Header[idempotencyHeader]
	if !keyed {
		return "", nil
	}
	return values[0], tenancy.CheckIdempotencyKey(values[0])
}

// serveIdempotent carries out a request that changes something. With an Idempotency-Key it takes effect once: the same request
// again is told what the first was told. One that came to nothing may be sent again.
func (s *Server) serveIdempotent(rec *requestRecord, w http.ResponseWriter, r *http.Request, serve Handler) error {
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
	return s.executeOnce(rec, w, r, tenancy.IdempotentRequest{Key: key, Method: r.Method, Path: r.URL.RequestURI(), Body: body}, serve)
}

// executeOnce does what the request says, unless that has been done under its key, and keeps what came of it.
func (s *Server) executeOnce(rec *requestRecord, w http.ResponseWriter, r *http.Request, req tenancy.IdempotentRequest, serve Handler) error {
	req.Actor = rec.operator.ActorName()
	if v := rec.request; v != nil {
		req.Actor = fmt.Sprintf("%s/%q/%q", v.App.ID, v.Principal.Issuer, v.Principal.Subject)
	}
	claim, known, err := s.options.Apps.ClaimIdempotencyKey(r.Context(), req)
	switch {
	case err != nil:
		return err
	case known != nil:
		return writeReplay(w, known)
	}
	to := &responseRecorder{ResponseWriter: w}
	if rec.request != nil {
		to.recorded.App = rec.request.App.ID
	}
	rec.recorder = to
	err = serve(to, r)
	cleanupCtx, cancel := NewCleanupContext(r.Context())
	defer cancel()
	if err != nil {
		// The key comes free by itself after a while if this does not succeed.
		_ = claim.ReleaseKey(cleanupCtx)
		return err
	}
	// What came of it was told even if a repetition could not be told.
	_ = claim.StoreResponse(cleanupCtx, to.recordedResponse())
	return nil
}

// writeReplay answers a repetition.
func writeReplay(w http.ResponseWriter, known *tenancy.StoredResponse) error {
	w.Header().Set("Idempotent-Replayed", "true")
	if len(known.Body) == 0 {
		w.WriteHeader(known.Status)
		return nil
	}
	return WriteJSON(w, known.Status, json.RawMessage(known.Body))
}

// responseRecorder remembers an answer on its way to the client.
type responseRecorder struct {
	http.ResponseWriter
	recorded tenancy.StoredResponse
	body     bytes.Buffer
}

// SetReplay has a repetition of r told v in the place of what the handler answers, since that holds a secret, and has it
// forgotten with the app it tells of, which may be "".
func SetReplay(r *http.Request, v any, app db.ID) error {
	k := recordOf(r).recorder
	if k == nil {
		return nil
	}
	k.recorded.App = app
	if v == nil {
		return nil
	}
	var err error
	k.recorded.Body, err = json.Marshal(v)
	return err
}

func (k *responseRecorder) WriteHeader(status int) {
	k.recorded.Status = status
	k.ResponseWriter.WriteHeader(status)
}

func (k *responseRecorder) Write(b []byte) (int, error) {
	k.body.Write(b)
	return k.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (k *responseRecorder) Unwrap() http.ResponseWriter { return k.ResponseWriter }

func (k *responseRecorder) recordedResponse() tenancy.StoredResponse {
	if k.recorded.Status == 0 {
		k.recorded.Status = http.StatusOK
	}
	if k.recorded.Body == nil {
		k.recorded.Body = bytes.TrimSpace(k.body.Bytes())
	}
	return k.recorded
}

// NewIdempotentMethod returns m as a method that takes effect once under an Idempotency-Key.
func NewIdempotentMethod(m Method) Method {
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
		return rec.request.server.executeOnce(rec, w, r, tenancy.IdempotentRequest{Key: key, Method: r.Method, Path: r.URL.RequestURI(), Body: body},
			func(w http.ResponseWriter, r *http.Request) error {
				c.w = w
				return m(w, r, c)
			})
	}
}
