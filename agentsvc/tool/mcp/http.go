package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
)

// newHTTPClient returns the HTTP client of one connection. It adds the connector's headers to requests to the server's
// own origin. The end of the connection's lifetime ends its requests, and refuses further ones, since the library may
// still try to end a session. With bounded set it bounds event streams, by the connection's unsolicited messages.
func (con *connector) newHTTPClient(c *connection, bounded bool) *http.Client {
	origin, _ := url.Parse(con.options.URL)
	out := *con.options.HTTP
	out.Transport = &serverTransport{
		connection: c, bounded: bounded, next: con.options.HTTP.Transport, origin: origin, headers: con.headers,
		maxBytes: con.options.MaxMessage, replyTimeout: con.replyTimeout,
	}
	return &out
}

// serverTransport adds headers, bounds requests and the bodies of answers, and records failures in the exchange of the
// context. It is read-only and safe for concurrent use.
type serverTransport struct {
	connection *connection
	// bounded reports that event streams are bounded here, and not by a boundedTransport.
	bounded  bool
	next     http.RoundTripper
	origin   *url.URL
	headers  map[string]string
	maxBytes int
	// replyTimeout is the constant of this name; tests set another one.
	replyTimeout time.Duration
}

// RoundTrip implements [http.RoundTripper].
func (t *serverTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := t.connection
	if c.lifetime.Err() != nil {
		return nil, context.Cause(c.lifetime)
	}
	// A request outside an exchange has none; its methods accept nil.
	seen, _ := req.Context().Value(exchangeKey{}).(*httpExchange)
	switch {
	case req.Method == http.MethodGet && t.bounded:
		// The server decides how soon the library resumes a stream, and each attempt costs a request.
		if err := c.unsolicited.add(1, 0); err != nil {
			return nil, err
		}
	case req.Method == http.MethodPost && isCall(req):
		seen.grantAllowance(t.maxBytes)
	case req.Method == http.MethodPost:
		defer time.AfterFunc(t.replyTimeout, func() { c.end(errReplyTimeout) }).Stop()
	}
	// The library gives replies a context that never ends.
	ctx, cancel := context.WithCancel(req.Context())
	stopCancelling := context.AfterFunc(c.lifetime, cancel)
	release := func() {
		stopCancelling()
		cancel()
	}
	own := req.URL.Scheme == t.origin.Scheme && req.URL.Host == t.origin.Host
	req = req.Clone(ctx)
	if own {
		for name, value := range t.headers {
			req.Header.Set(name, value)
		}
	}
	resp, err := t.next.RoundTrip(req)
	seen.recordResponse(req, resp, err)
	if err != nil {
		release()
		return nil, err
	}
	body := resp.Body
	switch media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); {
	case media != "text/event-stream":
		// Event streams have no total. One event is bounded by the library's MaxEventSize.
		body = http.MaxBytesReader(nil, body, int64(t.maxBytes))
	case t.bounded:
		body = &eventStream{ReadCloser: body, unsolicited: &c.unsolicited, exchange: seen}
	}
	resp.Body = &releasedBody{body, release}
	return resp, nil
}

// releasedBody calls release when the body is closed.
type releasedBody struct {
	io.ReadCloser
	release func()
}

// Close implements [io.Closer].
func (b *releasedBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
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
	// allowedEvents and allowedBytes are what the server may still send as the answer to the last request.
	allowedEvents, allowedBytes int
}

// isCall reports whether req carries a call. Other messages are replies and notifications, which have no answer.
func isCall(req *http.Request) bool {
	if req.GetBody == nil {
		return false
	}
	body, err := req.GetBody()
	if err != nil {
		return false
	}
	defer func() { _ = body.Close() }()
	var message struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	err = json.NewDecoder(body).Decode(&message)
	return err == nil && message.Method != "" && len(message.ID) > 0
}

// revokeAllowance revokes what is left of the allowance.
func (e *httpExchange) revokeAllowance() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.allowedEvents, e.allowedBytes = 0, 0
}

// grantAllowance permits one answer of at most n bytes, and the lines around it. e may be nil.
func (e *httpExchange) grantAllowance(n int) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.allowedEvents, e.allowedBytes = 1, n+4<<10
}

// useAllowance deducts events and bytes from the allowance and returns those beyond it. e may be nil.
func (e *httpExchange) useAllowance(events, bytes int) (moreEvents, moreBytes int) {
	if e == nil {
		return events, bytes
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	usedEvents, usedBytes := min(events, e.allowedEvents), min(bytes, e.allowedBytes)
	e.allowedEvents -= usedEvents
	e.allowedBytes -= usedBytes
	return events - usedEvents, bytes - usedBytes
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
