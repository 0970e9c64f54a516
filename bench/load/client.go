package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	// callTimeout bounds one call; a server that takes longer has failed it.
	callTimeout = 60 * time.Second
	// maxLine bounds one line of an answer; the final event of a long stream holds the whole text in one.
	maxLine = 4 << 20
	// maxExcerpt bounds how much of an answer an error contains.
	maxExcerpt = 300
)

// ErrUnexpected is wrapped by the error of a call whose answer came but was not a good one.
var ErrUnexpected = errors.New("unexpected answer")

var errClosed = errors.New("the server has closed the connection")

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
	line []byte // buffer for an answer, or for a line of one
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
	start, err := c.send(t)
	if err != nil {
		return Timing{}, err
	}
	return c.receive(t, start)
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

// send sends t and returns when that began.
func (c *Client) send(t Target) (time.Time, error) {
	start := time.Now()
	if c.conn == nil {
		return start, errClosed
	}
	err := c.conn.SetDeadline(start.Add(callTimeout))
	if err == nil {
		_, err = c.conn.Write(t.request)
	}
	if err != nil {
		_ = c.Close()
		return start, fmt.Errorf("send: %w", err)
	}
	return start, nil
}

// receive reads the answer of t, which was sent at start.
func (c *Client) receive(t Target, start time.Time) (timing Timing, err error) {
	defer func() {
		if err != nil {
			_ = c.Close()
		}
	}()
	h, err := readHead(c.in)
	if err != nil {
		return Timing{}, fmt.Errorf("read the answer: %w", err)
	}
	timing, good, excerpt, err := c.read(h, t, start)
	switch {
	case err != nil:
		return Timing{}, fmt.Errorf("read the answer: %w", err)
	case h.status != statusOK || !good:
		return Timing{}, fmt.Errorf("%w: status %d: %s", ErrUnexpected, h.status, excerpt)
	case h.last:
		_ = c.Close()
	}
	return timing, nil
}

// read consumes the body. The excerpt is the last line that was not empty, cut short, for the error's text.
func (c *Client) read(h head, t Target, start time.Time) (timing Timing, good bool, excerpt string, err error) {
	if h.length < 0 {
		return c.readLines(h.body(c.in), t, start)
	}
	if int64(cap(c.line)) < h.length {
		c.line = make([]byte, h.length)
	}
	all := c.line[:h.length]
	if _, err := io.ReadFull(c.in, all); err != nil {
		return Timing{}, false, "", err
	}
	timing.Whole = time.Since(start)
	if bytes.Contains(all, t.first) {
		timing.First = timing.Whole
		if t.stamped {
			timing.First = time.Since(stamp(all, t.first))
		}
	}
	if good = bytes.Contains(all, t.want); !good {
		excerpt = string(all[:min(len(all), maxExcerpt)])
	}
	return timing, good, excerpt, nil
}

// readLines consumes a body that comes bit by bit.
func (c *Client) readLines(body io.Reader, t Target, start time.Time) (timing Timing, good bool, excerpt string, err error) {
	lines := bufio.NewScanner(body)
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
			last = append(last[:0], line[:min(len(line), maxExcerpt)]...)
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
