package surface

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"

	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/idempotency"
	"stoa/tenancy/db"
)

// serveIdempotent serves a request that changes something. With an Idempotency-Key it takes effect once: a repetition
// within 24 hours gets the stored response, and the same key with another request is refused (422). A request that
// failed may be repeated under its key. A dry run changes nothing and is not stored.
func serveIdempotent(stored *idempotency.Store, w http.ResponseWriter, r *http.Request, route *Route) error {
	key, err := idempotency.Key(r)
	if err != nil {
		return err
	}
	dryRun, err := decode.ParseBool(r.URL.Query(), "dry_run")
	if err != nil {
		return err
	}
	if key == "" || dryRun {
		return route.Serve(w, r)
	}
	read := ReadBody
	if route.File {
		read = ReadFile
	}
	body, err := read(r)
	if err != nil {
		return err
	}
	// The body is part of what the key stands for, so it is read here; the handler reads it again from memory.
	r.Body = io.NopCloser(bytes.NewReader(body))
	content := body
	if route.File {
		content = describeFile(route, r, body)
	}
	return executeOnce(stored, w, r, key, content, route.Serve)
}

// describeFile returns what an Idempotency-Key stands for on a route with [Route].File: the hash of the file, and the
// headers that describe it.
func describeFile(route *Route, r *http.Request, file []byte) []byte {
	sum := sha256.Sum256(file)
	content := sum[:]
	for _, name := range append([]string{"Content-Type"}, route.RequestHeaders...) {
		content = fmt.Appendf(content, "\n%s: %q", name, r.Header.Values(name))
	}
	return content
}

// executeOnce is [idempotency.Store.Execute] for a request with that key and content. Keys belong to the caller: to the app
// and subject, or to the operator.
func executeOnce(stored *idempotency.Store, w http.ResponseWriter, r *http.Request, key string, content []byte, serve Handler) error {
	rec := recordOf(r)
	actor, app := rec.operator.ActorName(), db.ID("")
	if v := rec.request; v != nil {
		actor, app = fmt.Sprintf("%s/%q/%q", v.App.ID, v.Principal.Issuer, v.Principal.Subject), v.App.ID
	}
	req := idempotency.Request{Actor: actor, Key: key, Method: r.Method, Path: r.URL.RequestURI(), Body: content}
	return stored.Execute(w, r, req, app, serve)
}

// ExecuteOnce serves the request of a tenant route once under an idempotency key, for routes that carry several
// operations, of which not all honour a key. content is what a repetition must have in common with the request.
func ExecuteOnce(w http.ResponseWriter, r *http.Request, key string, content []byte, serve Handler) error {
	return executeOnce(RequestOf(r).server.options.Idempotency, w, r, key, content, serve)
}
