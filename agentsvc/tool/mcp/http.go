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

// client returns the way out for one connection, with the server's headers to its own host alone. Nothing goes out once
// life has ended.
func (l *line) client(life context.Context) *http.Client {
	home, _ := url.Parse(l.o.URL)
	out := *l.o.HTTP
	out.Transport = &courier{life: life, next: l.o.HTTP.Transport, home: home, headers: l.headers, max: int64(l.o.MaxMessage)}
	return &out
}

// courier adds headers to what goes to one host, caps what comes back, and notes what became of it.
type courier struct {
	life    context.Context
	next    http.RoundTripper
	home    *url.URL
	headers map[string]string
	max     int64
}

// RoundTrip implements [http.RoundTripper].
func (c *courier) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := c.life.Err(); err != nil {
		return nil, err
	}
	if req.URL.Scheme == c.home.Scheme && req.URL.Host == c.home.Host && len(c.headers) > 0 {
		req = req.Clone(req.Context())
		for name, value := range c.headers {
			req.Header.Set(name, value)
		}
	}
	resp, err := c.next.RoundTrip(req)
	seen, _ := req.Context().Value(exchangeKey{}).(*exchange)
	seen.note(req, resp, err)
	if err != nil {
		return nil, err
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != "text/event-stream" {
		resp.Body = http.MaxBytesReader(nil, resp.Body, c.max)
	}
	return resp, nil
}

// exchange is what was seen of the HTTP below an exchange with a server: the client library keeps it to itself. It is
// handed down in the context.
type exchange struct {
	mu   sync.Mutex
	last error // the last failure
	sent bool  // something has left
	// refused says that the server rejected a request of an established session: it knows the session no more.
	refused bool
}

type exchangeKey struct{}

// answeredError is a failure of a server that did answer.
type answeredError struct{ error }

func (e *answeredError) Unwrap() error { return e.error }

func (x *exchange) note(req *http.Request, resp *http.Response, err error) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sent = x.sent || err == nil || !egress.Unsent(err)
	switch {
	case err != nil:
		x.last = fmt.Errorf("%s", egress.Reason(err))
	case resp.StatusCode >= http.StatusBadRequest:
		x.last = &answeredError{fmt.Errorf("the server answered HTTP %d", resp.StatusCode)}
		if resp.StatusCode == http.StatusUnauthorized {
			x.last = &answeredError{errUnauthorized}
		}
		if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusBadRequest {
			x.refused = req.Header.Get("Mcp-Session-Id") != ""
		}
	}
}

func (x *exchange) failure() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.last
}

// unsent returns the failure of an exchange of which nothing has left.
func (x *exchange) unsent() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.sent {
		return nil
	}
	return x.last
}

func (x *exchange) sessionRefused() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.refused
}

// protocol are the headers that belong to the connection or the protocol.
var protocol = map[string]bool{
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
		return agentsvc.Invalid("headers", "%q is no header name", name)
	case protocol[canonical] || strings.HasPrefix(canonical, "Mcp-"):
		return agentsvc.Invalid(at, "belongs to the protocol and cannot be set")
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return agentsvc.Invalid(at, "holds a control character")
	}
	return nil
}
