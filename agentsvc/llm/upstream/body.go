package upstream

import (
	"context"
	"errors"
	"io"
	"time"

	"stoa/agentsvc/capacity"
)

const (
	// maxEvent bounds one event.
	maxEvent = 8 << 20
	// What may follow the last line of an answer is read only as far as this.
	drainBytes = 4 << 10
	drainTime  = 100 * time.Millisecond
)

// body is a body of events, server-sent ones (HTML living standard, section 9.2) or lines, that ends in an error where
// one is too long.
type body struct {
	io.ReadCloser
	lines  bool   // each line is an event
	marker string // the line that ends an answer, without blanks; empty where none does
	ctx    context.Context
	size   int    // of the event that is being read
	most   int    // that an event had, which is in memory while it is read
	line   []byte // the start of the line that is being read
	last   bool   // the marker was read
	end    bool   // the body's end was read
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for _, c := range p[:n] {
		b.size++
		switch {
		case c == '\n':
			if b.lines || len(b.line) == 0 {
				b.size = 0
			}
			b.last = b.last || b.marker != "" && string(b.line) == b.marker
			b.line = b.line[:0]
		case c != '\r' && c != ' ' && len(b.line) <= len(b.marker):
			b.line = append(b.line, c)
		}
	}
	if b.size > maxEvent {
		return 0, ErrTooLong
	}
	if b.size > b.most {
		if err := capacity.Of(b.ctx).Add(b.ctx, int64(b.size-b.most)); err != nil {
			return 0, err
		}
		b.most = b.size
	}
	b.end = b.end || errors.Is(err, io.EOF)
	return n, err
}

// Close closes the body. It reads what little may follow a whole answer, so that the connection can be used again.
func (b *body) Close() error {
	if b.last && !b.end {
		late := time.AfterFunc(drainTime, func() { _ = b.ReadCloser.Close() })
		defer late.Stop()
		_, _ = io.CopyN(io.Discard, b.ReadCloser, drainBytes)
	}
	return b.ReadCloser.Close()
}

// quiet is a body that simply ends where it breaks off, and tells broken why.
type quiet struct {
	io.ReadCloser
	broken *error
}

func (q quiet) Read(p []byte) (int, error) {
	n, err := q.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		*q.broken = err
		err = io.EOF
	}
	return n, err
}

// Close closes the body. That it is closed already is no error.
func (q quiet) Close() error {
	_ = q.ReadCloser.Close()
	return nil
}
