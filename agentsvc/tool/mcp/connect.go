package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// connection is a session with the server, from its start to its loss.
type connection struct {
	session      *mcp.ClientSession
	process      *process      // nil = none
	done         chan struct{} // closed when the session is over
	toolsChanged atomic.Bool   // the server said that its tools are others now
}

func (c *connection) isAlive() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// Errors of a server that is not there.
var (
	errAppClosed      = errors.New("the app was closed")
	errConnectionLost = errors.New("the connection was lost")
	errNotMCP         = errors.New("it does not speak MCP as expected")
	// errUnauthorized is HTTP 401: the server does not know who it is.
	errUnauthorized = errors.New("the server answered HTTP 401")
)

// unavailableError says in words that may be shown why there is no connection.
type unavailableError struct {
	reason string
	cause  error // for logs at debug level
}

func (e *unavailableError) Error() string { return e.reason }
func (e *unavailableError) Unwrap() error { return e.cause }

// describeReason puts an error into words that may be shown.
func describeReason(err error) string {
	var unavailable *unavailableError
	switch {
	case errors.As(err, &unavailable):
		return unavailable.reason
	case errors.Is(err, errAppClosed), errors.Is(err, errConnectionLost):
		return err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.Is(err, context.Canceled):
		return "the call was cancelled"
	}
	return errNotMCP.Error()
}

// ensureConnection returns the connection there is, or makes one. One attempt serves all who wait. After one that did not
// succeed the next is put off, and until then its error is returned at once.
func (l *connector) ensureConnection(ctx context.Context) (*connection, error) {
	l.mu.Lock()
	switch {
	case l.ctx.Err() != nil:
		l.mu.Unlock()
		return nil, errAppClosed
	case l.conn != nil && l.conn.isAlive():
		defer l.mu.Unlock()
		return l.conn, nil
	case l.dialDone == nil && time.Now().Before(l.nextDial):
		defer l.mu.Unlock()
		return nil, l.dialErr
	case l.dialDone == nil:
		l.dialDone = make(chan struct{})
		l.wg.Go(l.dialServer)
	}
	done := l.dialDone
	l.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return nil, l.dialErr
	}
	return l.conn, nil
}

// dialServer makes one attempt to connect and to learn the server's tools.
func (l *connector) dialServer() {
	conn, err := l.openConnection()
	if err == nil {
		if _, err = l.refreshList(l.ctx, conn); err != nil {
			err = &unavailableError{reason: "it told no list of tools: " + describeReason(err), cause: err}
			_ = conn.session.Close()
			conn = nil
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn, l.dialErr = conn, err
	close(l.dialDone)
	l.dialDone = nil
	if err == nil {
		l.retryBackoff.Reset()
		l.options.Logger.Debug("connected to an MCP server", "tool", l.options.Name)
		return
	}
	wait := l.retryBackoff.NextBackOff()
	l.nextDial = time.Now().Add(wait)
	switch {
	case l.ctx.Err() != nil:
	case l.options.Credential != nil && errors.Is(err, errUnauthorized):
		l.options.Logger.Debug("an MCP server wants a credential of its caller", "tool", l.options.Name)
	default:
		l.options.Logger.Warn("an MCP server is away", "tool", l.options.Name, "reason", describeReason(err), "retry_in", wait.Round(time.Millisecond))
		l.options.Logger.Debug("why an MCP server is away", "tool", l.options.Name, "error", l.credential.RedactText(fmt.Sprint(errors.Unwrap(err))))
	}
}

// openConnection connects by the transport that is asked for, that worked before, or that does.
func (l *connector) openConnection() (*connection, error) {
	s := l.Server
	s.mu.Lock()
	detected := s.detectedTransport
	s.mu.Unlock()
	try := []Transport{detected}
	if detected == "" {
		try = []Transport{StreamableHTTP, SSE}
		if strings.HasSuffix(strings.TrimRight(s.options.URL, "/"), "/sse") {
			try = []Transport{SSE, StreamableHTTP}
		}
	}
	var first error
	for _, t := range try {
		c, err := l.connectWith(t)
		if err == nil {
			s.mu.Lock()
			s.detectedTransport = t
			s.mu.Unlock()
			return c, nil
		}
		if first == nil {
			first = err
		}
		var answered *responseError
		if !errors.As(err, &answered) {
			break // nobody is there to speak the other one either
		}
	}
	return nil, first
}

// connectWith connects by one transport. The connection lives until it is lost, closed, or the server is.
func (l *connector) connectWith(t Transport) (*connection, error) {
	lifetime, end := context.WithCancel(context.Background())
	ready := false
	defer func() {
		if !ready {
			end()
		}
	}()
	seen := &httpExchange{}
	c := &connection{done: make(chan struct{})}
	transport, err := l.newTransport(lifetime, t, c)
	if err != nil {
		return nil, err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "stoa", Version: "1"}, &mcp.ClientOptions{
		Capabilities:           &mcp.ClientCapabilities{}, // a server may ask for nothing
		MultiRoundTrip:         &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { c.toolsChanged.Store(true) },
	})
	connectTimer, stopClosing := time.AfterFunc(l.options.ConnectTimeout, end), context.AfterFunc(l.ctx, end)
	c.session, err = client.Connect(context.WithValue(lifetime, exchangeKey{}, seen), transport, nil)
	inTime := connectTimer.Stop()
	inTime = stopClosing() && inTime
	if err != nil || !inTime {
		if c.session != nil {
			_ = c.session.Close()
		}
		if c.process != nil {
			_ = c.process.Close()
		}
		return nil, c.explainFailure(seen, err, inTime)
	}
	ready = true
	l.wg.Go(func() {
		stopClosing := context.AfterFunc(l.ctx, func() { _ = c.session.Close() })
		_ = c.session.Wait()
		if !stopClosing() {
			_ = c.session.Close() // wait for the one that has begun
		}
		end()
		if c.process != nil {
			_ = c.process.Close()
		}
		close(c.done)
	})
	return c, nil
}

func (l *connector) newTransport(lifetime context.Context, t Transport, c *connection) (mcp.Transport, error) {
	switch t {
	case Stdio:
		p, err := startProcess(l.options)
		if err != nil {
			return nil, err
		}
		c.process = p
		return &mcp.IOTransport{Reader: io.NopCloser(p), Writer: p, MaxLineLength: l.options.MaxMessage}, nil
	case SSE:
		return &mcp.SSEClientTransport{Endpoint: l.options.URL, HTTPClient: l.newHTTPClient(lifetime), MaxEventSize: l.options.MaxMessage}, nil
	default:
		return &mcp.StreamableClientTransport{Endpoint: l.options.URL, HTTPClient: l.newHTTPClient(lifetime), MaxEventSize: l.options.MaxMessage}, nil
	}
}

// explainFailure says why no connection came about.
func (c *connection) explainFailure(seen *httpExchange, err error, inTime bool) error {
	if err == nil {
		err = context.DeadlineExceeded
	}
	if c.process != nil {
		if ended := c.process.exitReason(); ended != "" && inTime {
			return &unavailableError{reason: ended, cause: err}
		}
	}
	reason := seen.lastFailure()
	switch {
	case !inTime:
		return &unavailableError{reason: "no answer in time", cause: err}
	case reason != nil:
		return &unavailableError{reason: reason.Error(), cause: fmt.Errorf("%w: %w", reason, err)}
	}
	return &unavailableError{reason: errNotMCP.Error(), cause: &responseError{err}}
}
