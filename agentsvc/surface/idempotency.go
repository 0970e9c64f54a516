package surface

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"stoa/agentsvc/surface/response"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// idempotencyHeader is the header with the key under which a request takes effect once
// (draft-ietf-httpapi-idempotency-key-header).
const idempotencyHeader = "Idempotency-Key"

// IdempotencyKey returns the idempotency key of a request, "" if it has none. It returns an error for a malformed key.
func IdempotencyKey(r *http.Request) (string, error) {
	values, keyed := r.Header[idempotencyHeader]
	if !keyed {
		return "", nil
	}
	return values[0], tenancy.CheckIdempotencyKey(values[0])
}

// serveIdempotent serves a request that changes something. With an Idempotency-Key it takes effect once: a repetition
// within 24 hours gets the stored response, and the same key with another request is refused (422). A request that
// failed may be repeated under its key. A dry run changes nothing and is not stored.
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
	// The body is part of what the key stands for, so it is read here; the handler reads it again from memory.
	r.Body = io.NopCloser(bytes.NewReader(body))
	return s.executeOnce(rec, w, r, tenancy.IdempotentRequest{Key: key, Method: r.Method, Path: r.URL.RequestURI(), Body: body}, serve)
}

// executeOnce claims the request's key, calls serve and stores its response. The claim is a row that only one request
// can insert; a concurrent repetition gets [tenancy.ErrInProgress] (409). If the process dies meanwhile, the claim
// expires after five minutes. Keys belong to the caller: to the app and subject, or to the operator.
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
	// The outcome must be stored although the client may have disconnected: that is when it repeats the request.
	cleanupCtx, cancel := NewCleanupContext(r.Context())
	defer cancel()
	if err != nil {
		// If this fails, the claim expires by itself.
		_ = claim.ReleaseKey(cleanupCtx)
		return err
	}
	// The response has been sent. If storing it fails, a repetition is refused until the claim expires, then it takes
	// effect again.
	_ = claim.StoreResponse(cleanupCtx, to.recordedResponse())
	return nil
}

// writeReplay writes a stored response and marks it with Idempotent-Replayed.
func writeReplay(w http.ResponseWriter, known *tenancy.StoredResponse) error {
	w.Header().Set("Idempotent-Replayed", "true")
	if len(known.Body) == 0 {
		w.WriteHeader(known.Status)
		return nil
	}
	return response.WriteJSON(w, known.Status, json.RawMessage(known.Body))
}

// responseRecorder passes a response on to the client and keeps a copy of it.
type responseRecorder struct {
	http.ResponseWriter
	// recorded is what will be stored. SetReplay may set its Body, which then replaces the copied one, and its App.
	recorded tenancy.StoredResponse
	// body is the response's body as the client got it.
	body bytes.Buffer
}

// SetReplay sets what a repetition of r gets in place of the response, which contains a secret that is shown once; v =
// nil keeps the response. The stored response is deleted together with app, "" = with none. It does nothing for a
// request without a key.
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

// WriteHeader records the status and passes it on.
func (k *responseRecorder) WriteHeader(status int) {
	k.recorded.Status = status
	k.ResponseWriter.WriteHeader(status)
}

// Write records b and passes it on.
func (k *responseRecorder) Write(b []byte) (int, error) {
	k.body.Write(b)
	return k.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (k *responseRecorder) Unwrap() http.ResponseWriter { return k.ResponseWriter }

// recordedResponse returns what to store: the replacement that SetReplay set, else the body as it was sent.
func (k *responseRecorder) recordedResponse() tenancy.StoredResponse {
	if k.recorded.Status == 0 {
		k.recorded.Status = http.StatusOK
	}
	if k.recorded.Body == nil {
		k.recorded.Body = bytes.TrimSpace(k.body.Bytes())
	}
	return k.recorded
}

// NewIdempotentMethod returns m as a JSON-RPC method that takes effect once under an Idempotency-Key, see
// serveIdempotent. The id of the call is part of the request: a repetition must have the same, since the stored
// response contains it.
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
				// The recorder must see the response.
				c.w = w
				return m(w, r, c)
			})
	}
}
