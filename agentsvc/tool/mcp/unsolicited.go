package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Bounds of what a server sends without a call. The client library queues requests and notifications without a bound,
// and answers each request, so beyond a bound the session ends. A server that reports changes, progress or log lines
// stays far below them.
const (
	// unsolicitedBurst and unsolicitedRate bound the messages at once, and in each second.
	unsolicitedBurst = 256
	unsolicitedRate  = 32
	// unsolicitedBytesBurst and unsolicitedBytesRate bound their bytes in the same way.
	unsolicitedBytesBurst = 1 << 20
	unsolicitedBytesRate  = 64 << 10
	// replyTimeout bounds how long a server may take to accept one reply to a request of its own, or a notification. The
	// replies that wait hold what they answer in memory.
	replyTimeout = 10 * time.Second
)

// Reasons for the end of a session that exceeded a bound.
var (
	errTooManyUnsolicited = &unavailableError{reason: fmt.Sprintf("it sent too many messages that answer no call: at most %d at once and %d a second are read", unsolicitedBurst, unsolicitedRate)}
	errTooMuchUnsolicited = &unavailableError{reason: fmt.Sprintf("it sent too much that answers no call: at most %d MiB at once and %d KiB a second are read", unsolicitedBytesBurst>>20, unsolicitedBytesRate>>10)}
	errReplyTimeout       = &unavailableError{reason: fmt.Sprintf("it did not accept a reply or a notification within %v", replyTimeout)}
)

// isBound reports whether err is one of these reasons.
func isBound(err error) bool {
	return errors.Is(err, errTooManyUnsolicited) || errors.Is(err, errTooMuchUnsolicited) || errors.Is(err, errReplyTimeout)
}

// tokenBucket holds what may still be used at once; it fills again with time. The zero value is full.
type tokenBucket struct {
	used float64
	// at is when used was computed.
	at time.Time
}

// take takes n of a bucket that holds at most burst and gains rate a second. It reports whether they were there.
func (b *tokenBucket) take(now time.Time, n, burst, rate float64) bool {
	b.used = max(0, b.used-now.Sub(b.at).Seconds()*rate)
	b.at = now
	if b.used+n > burst {
		return false
	}
	b.used += n
	return true
}

// unsolicited counts what one session's server sends without a call. It is safe for concurrent use.
type unsolicited struct {
	// end ends the session with a reason.
	end context.CancelCauseFunc

	// mu guards the fields below.
	mu              sync.Mutex
	messages, bytes tokenBucket
	// awaited is the number of calls that were sent and not answered yet, on a connection that boundedTransport wraps.
	awaited int
}

// add counts messages and their bytes. Beyond a bound it ends the session and returns the reason.
func (u *unsolicited) add(messages, bytes int) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	var err *unavailableError
	switch {
	case !u.messages.take(now, float64(messages), unsolicitedBurst, unsolicitedRate):
		err = errTooManyUnsolicited
	case !u.bytes.take(now, float64(bytes), unsolicitedBytesBurst, unsolicitedBytesRate):
		err = errTooMuchUnsolicited
	default:
		return nil
	}
	u.end(err)
	return err
}

// boundedTransport bounds what is read from a connection of its Transport. It is for the transports over one stream:
// the library gives the connection of the StreamableClientTransport of the SDK the state of the session by a method that is not
// exported, which a wrapper would hide. serverTransport bounds that one, as bytes of event streams.
type boundedTransport struct {
	mcp.Transport
	unsolicited *unsolicited
	// replyTimeout is the constant of this name; tests set another one.
	replyTimeout time.Duration
}

// Connect implements [mcp.Transport].
func (t *boundedTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &boundedConnection{c, t}, nil
}

// boundedConnection is a connection of a boundedTransport.
type boundedConnection struct {
	mcp.Connection
	transport *boundedTransport
}

// Read implements the Connection of the SDK. Beyond the bounds it returns an error, which ends the session.
func (c *boundedConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	if err != nil {
		return nil, err
	}
	u, size := c.transport.unsolicited, 0
	switch m := msg.(type) {
	case *jsonrpc.Request:
		size = len(m.Method) + len(m.Params)
	case *jsonrpc.Response:
		if u.takeAnswer() {
			return msg, nil
		}
		size = len(m.Result)
	}
	if err := u.add(1, size); err != nil {
		return nil, err
	}
	return msg, nil
}

// Write implements the Connection of the SDK. A call may be answered once; a reply has replyTimeout.
func (c *boundedConnection) Write(ctx context.Context, msg jsonrpc.Message) error {
	u := c.transport.unsolicited
	switch m := msg.(type) {
	case *jsonrpc.Request:
		if m.IsCall() {
			u.awaitAnswer()
		}
	case *jsonrpc.Response:
		defer time.AfterFunc(c.transport.replyTimeout, func() { u.end(errReplyTimeout) }).Stop()
	}
	return c.Connection.Write(ctx, msg)
}

// awaitAnswer records that a call is sent.
func (u *unsolicited) awaitAnswer() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.awaited++
}

// takeAnswer records an answer, and reports whether a call awaits one.
func (u *unsolicited) takeAnswer() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.awaited == 0 {
		return false
	}
	u.awaited--
	return true
}

// eventStream bounds the body of an event stream over streamable HTTP. An empty line ends an event. Comments and empty
// events count too, since each costs the time to read it.
type eventStream struct {
	io.ReadCloser
	unsolicited *unsolicited
	// exchange is what the stream belongs to: the answer to a call is not counted. Nil: to no call.
	exchange *httpExchange
	// lineBytes is the number of bytes of the current line, without carriage returns. It is used by the reader only.
	lineBytes int
}

// Read implements [io.Reader]. Beyond the bounds it returns an error.
func (s *eventStream) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b)
	events := 0
	for _, c := range b[:n] {
		switch c {
		case '\r':
		case '\n':
			if s.lineBytes == 0 {
				events++
			}
			s.lineBytes = 0
		default:
			s.lineBytes++
		}
	}
	events, size := s.exchange.useAllowance(events, n)
	if limitErr := s.unsolicited.add(events, size); limitErr != nil {
		return 0, limitErr
	}
	return n, err
}
