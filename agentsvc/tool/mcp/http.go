package mcp

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
)

// newHTTPClient returns the HTTP client of one connection. It adds the connector's headers to requests to the server's
// own origin, and refuses requests after lifetime has ended, since the library may still try to end a session.
func (con *connector) newHTTPClient(lifetime context.Context) *http.Client {
	origin, _ := url.Parse(con.options.URL)
	out := *con.options.HTTP
	out.Transport = &serverTransport{lifetime: lifetime, next: con.options.HTTP.Transport, origin: origin, headers: con.headers, maxBytes: int64(con.options.MaxMessage)}
	return &out
}

// serverTransport adds headers, bounds the bodies of answers and records failures in the exchange of the context. It is
// read-only and safe for concurrent use.
type serverTransport struct {
	lifetime context.Context
	next     http.RoundTripper
	origin   *url.URL
	headers  map[string]string
	maxBytes int64
}

// RoundTrip implements [http.RoundTripper].
func (t *serverTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := t.lifetime.Err(); err != nil {
		return nil, err
	}
	if req.URL.Scheme == t.origin.Scheme && req.URL.Host == t.origin.Host && len(t.headers) > 0 {
		req = req.Clone(req.Context())
		for name, value := range t.headers {
			req.Header.Set(name, value)
		}
	}
	resp, err := t.next.RoundTrip(req)
	// A request outside an exchange has none; recordResponse accepts nil.
	seen, _ := req.Context().Value(exchangeKey{}).(*httpExchange)
	seen.recordResponse(req, resp, err)
	if err != nil {
		return nil, err
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != "text/event-stream" {
		// Event streams are bounded by the library's MaxEventSize instead, since a stream has no total.
		resp.Body = http.MaxBytesReader(nil, resp.Body, t.maxBytes)
	}
	return resp, nil
}

// httpExchange records what happened in HTTP during one exchange with a server: the client library does not report it.
// Its methods are safe for concurrent use.
type httpExchange struct {
	mu sync.Mutex
	// mu guards the fields below.
	lastErr error
	// sent reports that a request may have reached the server.
	sent bool
	// refusedSession reports that the server rejected a request of an established session with 404 or 400: it no longer
	// knows the session, so it did not run the call.
	refusedSession bool
}

// exchangeKey is the context key of a *httpExchange. The client library stands between the call and the RoundTripper
// and passes on nothing but the context.
type exchangeKey struct{}

// responseError marks the failure of a server that did answer.
type responseError struct{ error }

func (e *responseError) Unwrap() error { return e.error }

// recordResponse records the outcome of one request. x may be nil.
func (e *httpExchange) recordResponse(req *http.Request, resp *http.Response, err error) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent = e.sent || err == nil || !egress.IsUnsent(err)
	switch {
	case err != nil:
		e.lastErr = fmt.Errorf("%s", egress.PublicMessage(err))
	case resp.StatusCode >= http.StatusBadRequest:
		e.lastErr = &responseError{fmt.Errorf("the server answered HTTP %d", resp.StatusCode)}
		if resp.StatusCode == http.StatusUnauthorized {
			e.lastErr = &responseError{errUnauthorized}
		}
		if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusBadRequest {
			// Only requests with a session id can refer to a forgotten session.
			e.refusedSession = req.Header.Get("Mcp-Session-Id") != ""
		}
	}
}

// lastFailure returns the last failure, nil if there was none.
func (e *httpExchange) lastFailure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lastErr
}

// unsentFailure returns the last failure if no request can have reached the server, else nil.
func (e *httpExchange) unsentFailure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sent {
		return nil
	}
	return e.lastErr
}

// isSessionRefused reports refusedSession.
func (e *httpExchange) isSessionRefused() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refusedSession
}

// protocolHeaders are headers of the connection or the protocol, which must not be configured.
var protocolHeaders = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Connection": true, "Content-Length": true, "Content-Type": true, "Expect": true,
	"Host": true, "Last-Event-Id": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

// checkHeaders checks all configured headers.
func checkHeaders(headers map[string]string) error {
	for name, value := range headers {
		if err := checkHeader("headers."+name, name, value); err != nil {
			return err
		}
	}
	return nil
}

// checkHeader returns an error with [agentsvc.CodeInvalid] for a header that must not be configured; at is its field.
func checkHeader(at, name, value string) error {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	}):
		return agentsvc.NewInvalidError("headers", "%q is no header name", name)
	case protocolHeaders[canonical] || strings.HasPrefix(canonical, "Mcp-"):
		return agentsvc.NewInvalidError(at, "belongs to the protocol and cannot be set")
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return agentsvc.NewInvalidError(at, "holds a control character")
	}
	return nil
}
