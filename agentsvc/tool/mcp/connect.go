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

// connection is one session with the server, from its start to its loss.
type connection struct {
	session *mcp.ClientSession
	// process is the server's program; nil for a server at an address.
	process *process
	// lifetime ends with the session, with a reason as its cause if a bound ended it. Everything of the session ends
	// with it. end ends it.
	lifetime context.Context
	end      context.CancelCauseFunc
	// unsolicited bounds what the server sends without a call.
	unsolicited unsolicited
	// boundRecorded is set by recordBound and guarded by the connector's mu.
	boundRecorded bool
	// done is closed when the session is over and its resources are released.
	done chan struct{}
	// toolsChanged is set when the server notifies that its list of tools changed, and cleared by refreshList.
	toolsChanged atomic.Bool
}

// isAlive reports whether the session is not over.
func (c *connection) isAlive() bool {
	select {
	case <-c.done:
		return false
	default:
		return c.lifetime.Err() == nil
	}
}

// newConnection returns a connection without a session. The caller ends it.
func newConnection() *connection {
	c := &connection{done: make(chan struct{})}
	// The session outlives the call that opened it, so its context is not the caller's.
	c.lifetime, c.end = context.WithCancelCause(context.Background())
	c.unsolicited.end = c.end
	return c
}

// exceededBound returns the bound that ended the session; nil: none did.
func (c *connection) exceededBound() *unavailableError {
	bound, _ := errors.AsType[*unavailableError](context.Cause(c.lifetime))
	return bound
}

// close closes the session. The library first waits for the replies that are being sent, and reports the end to the server. Both
// have sessionCloseTimeout.
func (c *connection) close() {
	defer time.AfterFunc(sessionCloseTimeout, func() { c.end(nil) }).Stop()
	_ = c.session.Close()
}

// Reasons why a server is not available. Their texts are shown to callers and models.
var (
	errAppClosed      = errors.New("the app was closed")
	errConnectionLost = errors.New("the connection was lost")
	errNotMCP         = errors.New("it does not speak MCP as expected")
	// errUnauthorized is HTTP 401: the server wants a (different) credential.
	errUnauthorized = errors.New("the server answered HTTP 401")
)

// unavailableError is the reason, fit to be shown, why there is no connection.
type unavailableError struct {
	reason string
	// cause is the underlying error. It may quote the server and is logged at debug level only.
	cause error
}

// Error returns the reason.
func (e *unavailableError) Error() string { return e.reason }

// Unwrap returns the cause.
func (e *unavailableError) Unwrap() error { return e.cause }

// describeReason returns a text for callers about err.
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

// ensureConnection returns the present connection or waits for a new one. All waiting calls share one attempt. After a
// failed attempt the next one is delayed, and until then the error is returned at once.
func (con *connector) ensureConnection(ctx context.Context) (*connection, error) {
	con.mu.Lock()
	if con.conn != nil {
		con.recordBound(con.conn)
	}
	switch {
	case con.ctx.Err() != nil:
		con.mu.Unlock()
		return nil, errAppClosed
	case con.conn != nil && con.conn.isAlive():
		defer con.mu.Unlock()
		return con.conn, nil
	case con.dialDone == nil && time.Now().Before(con.nextDial):
		defer con.mu.Unlock()
		return nil, con.dialErr
	case con.dialDone == nil:
		// The attempt runs in its own goroutine with the connector's lifetime: the end of the call that needed it first
		// must not fail the others.
		con.dialDone = make(chan struct{})
		con.wg.Go(con.dialServer)
	}
	done := con.dialDone
	con.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	con.mu.Lock()
	defer con.mu.Unlock()
	if con.conn == nil {
		return nil, con.dialErr
	}
	return con.conn, nil
}

// dialServer makes one attempt to connect and to list the tools, and publishes its outcome.
func (con *connector) dialServer() {
	// A connection counts only when the tools are listed: a server that cannot list them is not usable.
	conn, err := con.openConnection()
	if err == nil {
		if err = con.refreshList(con.ctx, conn); err != nil {
			err = &unavailableError{reason: "it returned no list of tools: " + describeReason(err), cause: err}
			conn.close()
			conn = nil
		}
	}
	con.mu.Lock()
	defer con.mu.Unlock()
	// A session that is over already is not published: the calls that wait get its reason.
	if err == nil && conn.exceededBound() != nil {
		conn, err = nil, conn.exceededBound()
	}
	// Publish before dialDone is closed, so that the waiting calls see the outcome.
	before := con.dialErr
	con.conn, con.dialErr = conn, err
	close(con.dialDone)
	con.dialDone = nil
	if err == nil {
		// A server whose last session exceeded a bound is not trusted because it answers.
		if !isBound(before) {
			con.retryBackoff.Reset()
		}
		con.options.Logger.Debug("connected to an MCP server", "tool", con.options.Name)
		return
	}
	// Calls until nextDial fail with dialErr at once, so that a server that is down is not dialled by every turn.
	wait := con.retryBackoff.NextBackOff()
	con.nextDial = time.Now().Add(wait)
	switch {
	// The connector was stopped: no failure of the server.
	case con.ctx.Err() != nil:
	// Expected of a server whose callers have credentials, so not a warning.
	case con.options.Credential != nil && errors.Is(err, errUnauthorized):
		con.options.Logger.Debug("an MCP server needs a credential of its caller", "tool", con.options.Name)
	default:
		con.options.Logger.Warn("an MCP server is unavailable", "tool", con.options.Name, "reason", describeReason(err), "retry_in", wait.Round(time.Millisecond))
		con.options.Logger.Debug("why an MCP server is unavailable", "tool", con.options.Name, "error", con.credential.RedactText(fmt.Sprint(errors.Unwrap(err))))
	}
}

// openConnection connects by the configured transport, by the one that worked before, or by each in turn. An address
// that ends in /sse suggests the older transport.
func (con *connector) openConnection() (*connection, error) {
	s := con.Server
	s.mu.Lock()
	detected := s.detectedTransport
	s.mu.Unlock()
	// A transport that worked once is not detected again: the server is expected to keep it.
	try := []Transport{detected}
	if detected == "" {
		try = []Transport{StreamableHTTP, SSE}
		if strings.HasSuffix(strings.TrimRight(s.options.URL, "/"), "/sse") {
			try = []Transport{SSE, StreamableHTTP}
		}
	}
	var first error
	for _, t := range try {
		c, err := con.connectWith(t)
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
			break // no answer at all: the other transport would not get one either
		}
	}
	return nil, first
}

// connectWith connects by one transport. The connection lives until it is lost or closed, or the connector is stopped.
func (con *connector) connectWith(t Transport) (*connection, error) {
	seen, c := &httpExchange{}, newConnection()
	ready := false
	defer func() {
		if !ready {
			c.end(nil)
		}
	}()
	transport, err := con.newTransport(t, c)
	if err != nil {
		return nil, err
	}
	// No capabilities: the server may neither ask the client for model calls nor for input.
	client := mcp.NewClient(&mcp.Implementation{Name: "stoa", Version: "1"}, &mcp.ClientOptions{
		Capabilities:           &mcp.ClientCapabilities{},
		MultiRoundTrip:         &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { c.toolsChanged.Store(true) },
	})
	// Connect has no timeout of its own: the timer ends its context. Stop reports whether that has not happened.
	connectTimer, stopClosing := time.AfterFunc(con.options.ConnectTimeout, func() { c.end(nil) }), context.AfterFunc(con.ctx, func() { c.end(nil) })
	c.session, err = client.Connect(context.WithValue(c.lifetime, exchangeKey{}, seen), transport, nil)
	// The library opens its stream for unsolicited messages in the context of this exchange.
	seen.revokeAllowance()
	// inTime is false if the timer or the connector's end has cut the attempt off.
	inTime := connectTimer.Stop()
	inTime = stopClosing() && inTime
	if err != nil || !inTime {
		c.end(nil) // replies that are being sent must not delay the end
		if c.session != nil {
			_ = c.session.Close()
		}
		if c.process != nil {
			_ = c.process.Close()
		}
		return nil, c.explainFailure(seen, err, inTime)
	}
	// From here on the goroutine below owns the session and calls end.
	ready = true
	con.wg.Go(func() {
		stopClosing := context.AfterFunc(con.ctx, c.close)
		stopAborting := context.AfterFunc(c.lifetime, func() {
			con.mu.Lock()
			con.recordBound(c)
			con.mu.Unlock()
			_ = c.session.Close()
		})
		_ = c.session.Wait()
		closing, aborting := !stopClosing(), !stopAborting()
		if closing || aborting {
			_ = c.session.Close() // wait for the Close that has begun
		}
		c.end(nil)
		if c.process != nil {
			_ = c.process.Close()
		}
		close(c.done)
	})
	return c, nil
}

// recordBound delays the next attempt to connect if the session exceeded a bound. Calls until then fail with that
// reason. It does so once for each connection. The caller holds con.mu.
func (con *connector) recordBound(c *connection) {
	bound := c.exceededBound()
	if bound == nil || c.boundRecorded {
		return
	}
	c.boundRecorded = true
	wait := con.retryBackoff.NextBackOff()
	con.dialErr, con.nextDial = bound, time.Now().Add(wait)
	con.options.Logger.Warn("a session with an MCP server was ended", "tool", con.options.Name, "reason", bound.reason, "retry_in", wait.Round(time.Millisecond))
}

// newTransport returns the library's transport for t. For Stdio it starts the program.
func (con *connector) newTransport(t Transport, c *connection) (mcp.Transport, error) {
	switch t {
	case Stdio:
		// The process is part of c at once, so that connectWith closes it after a failed handshake.
		p, err := startProcess(con.options)
		if err != nil {
			return nil, err
		}
		c.process = p
		// A reply that the program does not read waits until its input is closed.
		context.AfterFunc(c.lifetime, func() { _ = p.Close() })
		return con.boundTransport(c, &mcp.IOTransport{Reader: io.NopCloser(p), Writer: p, MaxLineLength: con.options.MaxMessage}), nil
	case SSE:
		return con.boundTransport(c, &mcp.SSEClientTransport{Endpoint: con.options.URL, HTTPClient: con.newHTTPClient(c, false), MaxEventSize: con.options.MaxMessage}), nil
	default:
		return &mcp.StreamableClientTransport{Endpoint: con.options.URL, HTTPClient: con.newHTTPClient(c, true), MaxEventSize: con.options.MaxMessage}, nil
	}
}

// boundTransport wraps a transport over one stream, see boundedTransport.
func (con *connector) boundTransport(c *connection, t mcp.Transport) mcp.Transport {
	return &boundedTransport{t, &c.unsolicited, con.replyTimeout}
}

// explainFailure returns why a connection failed, by the best evidence: the program's end, the timeout, what happened
// below in HTTP, or that the server does not speak MCP. responseError marks the cases in which the server answered.
func (c *connection) explainFailure(seen *httpExchange, err error, inTime bool) error {
	if err == nil {
		err = context.DeadlineExceeded
	}
	if bound := c.exceededBound(); bound != nil {
		return bound
	}
	if c.process != nil {
		// The program's exit explains more than the broken pipe that it caused.
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
