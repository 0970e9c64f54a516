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
	session *mcp.ClientSession
	process *process      // nil = none
	gone    chan struct{} // closed when the session is over
	changed atomic.Bool   // the server said that its tools are others now
}

func (c *connection) alive() bool {
	select {
	case <-c.gone:
		return false
	default:
		return true
	}
}

// Errors of a server that is not there.
var (
	errClosed  = errors.New("the app was closed")
	errLost    = errors.New("the connection was lost")
	errForeign = errors.New("it does not speak MCP as expected")
	// errUnauthorized is HTTP 401: the server does not know who it is.
	errUnauthorized = errors.New("the server answered HTTP 401")
)

// unreachable says in words that may be shown why there is no connection.
type unreachable struct {
	why   string
	cause error // for logs at debug level
}

func (e *unreachable) Error() string { return e.why }
func (e *unreachable) Unwrap() error { return e.cause }

// reason puts an error into words that may be shown.
func reason(err error) string {
	var away *unreachable
	switch {
	case errors.As(err, &away):
		return away.why
	case errors.Is(err, errClosed), errors.Is(err, errLost):
		return err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.Is(err, context.Canceled):
		return "the call was cancelled"
	}
	return errForeign.Error()
}

// connection returns the connection there is, or makes one. One attempt serves all who wait. After one that did not
// succeed the next is put off, and until then its error is returned at once.
func (l *line) connection(ctx context.Context) (*connection, error) {
	l.mu.Lock()
	switch {
	case l.ctx.Err() != nil:
		l.mu.Unlock()
		return nil, errClosed
	case l.conn != nil && l.conn.alive():
		defer l.mu.Unlock()
		return l.conn, nil
	case l.dialing == nil && time.Now().Before(l.retry):
		defer l.mu.Unlock()
		return nil, l.err
	case l.dialing == nil:
		l.dialing = make(chan struct{})
		l.work.Go(l.dial)
	}
	done := l.dialing
	l.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return nil, l.err
	}
	return l.conn, nil
}

// dial makes one attempt to connect and to learn the server's tools.
func (l *line) dial() {
	conn, err := l.open()
	if err == nil {
		if _, err = l.refresh(l.ctx, conn); err != nil {
			err = &unreachable{why: "it told no list of tools: " + reason(err), cause: err}
			_ = conn.session.Close()
			conn = nil
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn, l.err = conn, err
	close(l.dialing)
	l.dialing = nil
	if err == nil {
		l.pause.Reset()
		l.o.Logger.Debug("connected to an MCP server", "tool", l.o.Name)
		return
	}
	wait := l.pause.NextBackOff()
	l.retry = time.Now().Add(wait)
	switch {
	case l.ctx.Err() != nil:
	case l.o.Credential != nil && errors.Is(err, errUnauthorized):
		l.o.Logger.Debug("an MCP server wants a credential of its caller", "tool", l.o.Name)
	default:
		l.o.Logger.Warn("an MCP server is away", "tool", l.o.Name, "reason", reason(err), "retry_in", wait.Round(time.Millisecond))
		l.o.Logger.Debug("why an MCP server is away", "tool", l.o.Name, "error", l.grant.Hide(fmt.Sprint(errors.Unwrap(err))))
	}
}

// open connects by the transport that is asked for, that worked before, or that does.
func (l *line) open() (*connection, error) {
	s := l.Server
	s.mu.Lock()
	fitting := s.fitting
	s.mu.Unlock()
	try := []Transport{fitting}
	if fitting == "" {
		try = []Transport{StreamableHTTP, SSE}
		if strings.HasSuffix(strings.TrimRight(s.o.URL, "/"), "/sse") {
			try = []Transport{SSE, StreamableHTTP}
		}
	}
	var first error
	for _, t := range try {
		c, err := l.over(t)
		if err == nil {
			s.mu.Lock()
			s.fitting = t
			s.mu.Unlock()
			return c, nil
		}
		if first == nil {
			first = err
		}
		var answered *answeredError
		if !errors.As(err, &answered) {
			break // nobody is there to speak the other one either
		}
	}
	return nil, first
}

// over connects by one transport. The connection lives until it is lost, closed, or the server is.
func (l *line) over(t Transport) (*connection, error) {
	life, end := context.WithCancel(context.Background())
	up := false
	defer func() {
		if !up {
			end()
		}
	}()
	seen := &exchange{}
	c := &connection{gone: make(chan struct{})}
	transport, err := l.transport(life, t, c)
	if err != nil {
		return nil, err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "stoa", Version: "1"}, &mcp.ClientOptions{
		Capabilities:           &mcp.ClientCapabilities{}, // a server may ask for nothing
		MultiRoundTrip:         &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { c.changed.Store(true) },
	})
	late, closing := time.AfterFunc(l.o.Connect, end), context.AfterFunc(l.ctx, end)
	c.session, err = client.Connect(context.WithValue(life, exchangeKey{}, seen), transport, nil)
	inTime := late.Stop()
	inTime = closing() && inTime
	if err != nil || !inTime {
		if c.session != nil {
			_ = c.session.Close()
		}
		if c.process != nil {
			_ = c.process.Close()
		}
		return nil, c.explain(seen, err, inTime)
	}
	up = true
	l.work.Go(func() {
		closing := context.AfterFunc(l.ctx, func() { _ = c.session.Close() })
		_ = c.session.Wait()
		if !closing() {
			_ = c.session.Close() // wait for the one that has begun
		}
		end()
		if c.process != nil {
			_ = c.process.Close()
		}
		close(c.gone)
	})
	return c, nil
}

func (l *line) transport(life context.Context, t Transport, c *connection) (mcp.Transport, error) {
	switch t {
	case Stdio:
		p, err := start(l.o)
		if err != nil {
			return nil, err
		}
		c.process = p
		return &mcp.IOTransport{Reader: io.NopCloser(p), Writer: p, MaxLineLength: l.o.MaxMessage}, nil
	case SSE:
		return &mcp.SSEClientTransport{Endpoint: l.o.URL, HTTPClient: l.client(life), MaxEventSize: l.o.MaxMessage}, nil
	default:
		return &mcp.StreamableClientTransport{Endpoint: l.o.URL, HTTPClient: l.client(life), MaxEventSize: l.o.MaxMessage}, nil
	}
}

// explain says why no connection came about.
func (c *connection) explain(seen *exchange, err error, inTime bool) error {
	if err == nil {
		err = context.DeadlineExceeded
	}
	if c.process != nil {
		if ended := c.process.ended(); ended != "" && inTime {
			return &unreachable{why: ended, cause: err}
		}
	}
	why := seen.failure()
	switch {
	case !inTime:
		return &unreachable{why: "no answer in time", cause: err}
	case why != nil:
		return &unreachable{why: why.Error(), cause: fmt.Errorf("%w: %w", why, err)}
	}
	return &unreachable{why: errForeign.Error(), cause: &answeredError{err}}
}
