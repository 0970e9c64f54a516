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

// newHTTPClient returns the way out for one connection, with the server's headers to its own host alone. Nothing goes out once
// life has ended.
func (l *connector) newHTTPClient(lifetime context.Context) *http.Client {
	origin, _ := url.Parse(l.options.URL)
	out := *l.options.HTTP
	out.Transport = &serverTransport{lifetime: lifetime, next: l.options.HTTP.Transport, origin: origin, headers: l.headers, maxBytes: int64(l.options.MaxMessage)}
	return &out
}

// serverTransport adds headers to what goes to one host, caps what comes back, and notes what became of it.
type serverTransport struct {
	lifetime context.Context
	next     http.RoundTripper
	origin   *url.URL
	headers  map[string]string
	maxBytes int64
}

// RoundTrip implements [http.RoundTripper].
func (c *serverTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := c.lifetime.Err(); err != nil {
		return nil, err
	}
	if req.URL.Scheme == c.origin.Scheme && req.URL.Host == c.origin.Host && len(c.headers) > 0 {
		req = req.Clone(req.Context())
		for name, value := range c.headers {
			req.Header.Set(name, value)
		}
	}
	resp, err := c.next.RoundTrip(req)
	seen, _ := req.Context().Value(exchangeKey{}).(*httpExchange)
	seen.recordResponse(req, resp, err)
	if err != nil {
		return nil, err
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != "text/event-stream" {
		resp.Body = http.MaxBytesReader(nil, resp.Body, c.maxBytes)
	}
	return resp, nil
}

// httpExchange is what was seen of the HTTP below an exchange with a server: the client library keeps it to itself. It is
// handed down in the context.
type httpExchange struct {
	mu      sync.Mutex
	lastErr error // the last failure
	sent    bool  // something has left
	// refusedSession says that the server rejected a request of an established session: it knows the session no more.
	refusedSession bool
}

type exchangeKey struct{}

// responseError is a failure of a server that did answer.
type responseError struct{ error }

func (e *responseError) Unwrap() error { return e.error }

func (x *httpExchange) recordResponse(req *http.Request, resp *http.Response, err error) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sent = x.sent || err == nil || !egress.IsUnsent(err)
	switch {
	case err != nil:
		x.lastErr = fmt.Errorf("%s", egress.PublicMessage(err))
	case resp.StatusCode >= http.StatusBadRequest:
		x.lastErr = &responseError{fmt.Errorf("the server answered HTTP %d", resp.StatusCode)}
		if resp.StatusCode == http.StatusUnauthorized {
			x.lastErr = &responseError{errUnauthorized}
		}
		if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusBadRequest {
			x.refusedSession = req.Header.Get("Mcp-Session-Id") != ""
		}
	}
}

func (x *httpExchange) lastFailure() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.lastErr
}

// unsentFailure returns the failure of an exchange of which nothing has left.
func (x *httpExchange) unsentFailure() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.sent {
		return nil
	}
	return x.lastErr
}

func (x *httpExchange) isSessionRefused() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.refusedSession
}

// protocolHeaders are the headers that belong to the connection or the protocol.
var protocolHeaders = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Connection": true, "Content-Length": true, "Content-Type": true, "Expect": true,
	"Host": true, "Last-Event-Id": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

func checkHeaders(headers map[string]string) error {
	for name, value := range headers {
		if err := checkHeader("headers."+name, name, value); err != nil {
			return err
		}
	}
	return nil
}

// checkHeader says what is wrong with a header that is set at the given place of the configuration.
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
