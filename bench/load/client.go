package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	// callTimeout bounds one call; a server that takes longer has failed it.
	callTimeout = 60 * time.Second
	// maxLine bounds one line of an answer; the final event of a long stream holds the whole text in one.
	maxLine = 4 << 20
)

// ErrUnexpected is wrapped by the error of a call whose answer came but was not a good one.
var ErrUnexpected = errors.New("unexpected answer")

// Timing is how long one call took.
type Timing struct {
	First time.Duration // until the line with the first token, from the call or from when the token was sent
	Whole time.Duration // until the last byte
}

// Client is one keep-alive connection. It is not safe for concurrent use.
type Client struct {
	addr string
	conn net.Conn
	in   *bufio.Reader
	line []byte
}

// Dial connects to the server of t. Later calls may go to any target of the same server.
func Dial(ctx context.Context, t Target) (*Client, error) {
	c := &Client{addr: t.addr, line: make([]byte, 64<<10)}
	return c, c.dial(ctx)
}

// Close ends the connection.
func (c *Client) Close() error {
	if c.conn == nil {
		return nil
	}
	err := c.conn.Close()
	c.conn = nil
	return err
}

// Call sends t and reads its whole answer. After an error the next call starts on a new connection.
func (c *Client) Call(ctx context.Context, t Target) (Timing, error) {
	if t.addr != c.addr {
		return Timing{}, fmt.Errorf("target at %s: the client is connected to %s", t.addr, c.addr)
	}
	if c.conn == nil {
		if err := c.dial(ctx); err != nil {
			return Timing{}, err
		}
	}
	timing, err := c.call(t)
	if err != nil {
		_ = c.Close()
	}
	return timing, err
}

func (c *Client) dial(ctx context.Context) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	c.conn = conn
	c.in = bufio.NewReaderSize(conn, 16<<10)
	return nil
}

func (c *Client) call(t Target) (Timing, error) {
	start := time.Now()
	if err := c.conn.SetDeadline(start.Add(callTimeout)); err != nil {
		return Timing{}, fmt.Errorf("set the deadline: %w", err)
	}
	if _, err := c.conn.Write(t.request); err != nil {
		return Timing{}, fmt.Errorf("send: %w", err)
	}
	resp, err := http.ReadResponse(c.in, nil) //nolint:bodyclose // read closes it
	if err != nil {
		return Timing{}, fmt.Errorf("read the answer: %w", err)
	}
	timing, good, excerpt, err := c.read(resp, t, start)
	switch {
	case err != nil:
		return Timing{}, fmt.Errorf("read the answer: %w", err)
	case resp.StatusCode != http.StatusOK || !good:
		return Timing{}, fmt.Errorf("%w: status %d: %s", ErrUnexpected, resp.StatusCode, excerpt)
	case resp.Close:
		_ = c.Close()
	}
	return timing, nil
}

// read consumes the body. The excerpt is the last line that was not empty, cut short, for the error's text.
func (c *Client) read(resp *http.Response, t Target, start time.Time) (timing Timing, good bool, excerpt string, err error) {
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(c.line, maxLine)
	var last []byte
	for lines.Scan() {
		line := lines.Bytes()
		if timing.First == 0 && bytes.Contains(line, t.first) {
			sent := start
			if t.stamped {
				sent = stamp(line, t.first)
			}
			timing.First = time.Since(sent)
		}
		if bytes.Contains(line, t.want) {
			good = true
		}
		if !good && len(line) > 0 {
			last = append(last[:0], line[:min(len(line), 300)]...)
		}
	}
	timing.Whole = time.Since(start)
	return timing, good, string(last), lines.Err()
}

// stamp is the time that stands behind mark in line, 1970 if there is none.
func stamp(line, mark []byte) time.Time {
	_, rest, _ := bytes.Cut(line, mark)
	var micros int64
	for _, c := range rest {
		if c < '0' || c > '9' {
			break
		}
		micros = 10*micros + int64(c-'0')
	}
	return time.UnixMicro(micros)
}
