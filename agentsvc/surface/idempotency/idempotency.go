// Package idempotency makes requests with an Idempotency-Key (draft-ietf-httpapi-idempotency-key-header) take effect
// once: [Store.Execute] stores the response of the first one, and repetitions get the stored response.
package idempotency

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"stoa/agentsvc/surface/response"
	"stoa/tenancy/db"
)

// header is the header with the key under which a request takes effect once.
const header = "Idempotency-Key"

// Key returns the idempotency key of a request, "" if it has none. It returns an error for a malformed key.
func Key(r *http.Request) (string, error) {
	values, keyed := r.Header[header]
	if !keyed {
		return "", nil
	}
	return values[0], checkKey(values[0])
}

// cleanupTimeout bounds the storing of a response.
const cleanupTimeout = 5 * time.Second

// Execute claims the key of req, calls serve and stores its response. The claim is a row that only one request can
// insert; a concurrent repetition gets [ErrInProgress] (409). If the process dies meanwhile, the claim expires
// after five minutes. The stored response is deleted together with app, "" = with none.
func (s *Store) Execute(w http.ResponseWriter, r *http.Request, req Request, app db.ID, serve func(http.ResponseWriter, *http.Request) error) error {
	claim, known, err := s.Claim(r.Context(), req)
	switch {
	case err != nil:
		return err
	case known != nil:
		return writeReplay(w, known)
	}
	to := &recorder{ResponseWriter: w}
	to.recorded.App = app
	err = serve(to, r)
	// The outcome must be stored although the client may have disconnected: that is when it repeats the request.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), cleanupTimeout)
	defer cancel()
	if err != nil {
		// If this fails, the claim expires by itself.
		_ = claim.ReleaseKey(ctx)
		return err
	}
	// The response has been sent. If storing it fails, a repetition is refused until the claim expires, then it takes
	// effect again.
	_ = claim.StoreResponse(ctx, to.recordedResponse())
	return nil
}

// writeReplay writes a stored response and marks it with Idempotent-Replayed.
func writeReplay(w http.ResponseWriter, known *Response) error {
	w.Header().Set("Idempotent-Replayed", "true")
	for name, value := range map[string]string{"Location": known.Location, "ETag": known.ETag} {
		if value != "" {
			w.Header().Set(name, value)
		}
	}
	if len(known.Body) == 0 {
		w.WriteHeader(known.Status)
		return nil
	}
	return response.WriteJSON(w, known.Status, known.Body)
}

// recorder passes a response on to the client and keeps a copy of it.
type recorder struct {
	http.ResponseWriter
	// recorded is what will be stored. SetReplay may set its Body, which then replaces the copied one, and its App.
	recorded Response
	// body is the response's body as the client got it.
	body bytes.Buffer
}

// SetReplay sets what a repetition of the request gets in place of the response that w writes, which contains a secret
// that is shown once; v = nil keeps the response. The stored response is deleted together with app, "" = with none. It
// does nothing for a request without a key.
func SetReplay(w http.ResponseWriter, v any, app db.ID) error {
	k := unwrapRecorder(w)
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

// unwrapRecorder returns the recorder that w is or wraps, nil if there is none.
func unwrapRecorder(w http.ResponseWriter) *recorder {
	for {
		switch to := w.(type) {
		case *recorder:
			return to
		case interface{ Unwrap() http.ResponseWriter }:
			w = to.Unwrap()
		default:
			return nil
		}
	}
}

// WriteHeader records the status and passes it on.
func (r *recorder) WriteHeader(status int) {
	r.recorded.Status, r.recorded.Location, r.recorded.ETag = status, r.Header().Get("Location"), r.Header().Get("ETag")
	r.ResponseWriter.WriteHeader(status)
}

// Write records b and passes it on.
func (r *recorder) Write(b []byte) (int, error) {
	r.body.Write(b)
	return r.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// recordedResponse returns what to store: the replacement that SetReplay set, else the body as it was sent.
func (r *recorder) recordedResponse() Response {
	if r.recorded.Status == 0 {
		r.recorded.Status = http.StatusOK
	}
	if r.recorded.Body == nil {
		r.recorded.Body = bytes.TrimSpace(r.body.Bytes())
	}
	return r.recorded
}
