package upstream

import (
	"context"
	"errors"
	"io"
	"time"

	"stoa/agentsvc/capacity"
)

const (
	// maxEventBytes bounds one event.
	maxEventBytes = 8 << 20
	// What may follow the last line of an answer is read only as far as this.
	drainBytes   = 4 << 10
	drainTimeout = 100 * time.Millisecond
)

// eventBody is a body of events, server-sent ones (HTML living standard, section 9.2) or lines, that ends in an error where
// one is too long.
type eventBody struct {
	io.ReadCloser
	lineDelimited bool   // each line is an event
	marker        string // the line that ends an answer, without blanks; empty where none does
	ctx           context.Context
	eventSize     int    // of the event that is being read
	maxEventSize  int    // that an event had, which is in memory while it is read
	line          []byte // the start of the line that is being read
	markerRead    bool   // the marker was read
	eof           bool   // the body's end was read
}

func (b *eventBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for _, c := range p[:n] {
		b.eventSize++
		switch {
		case c == '\n':
			if b.lineDelimited || len(b.line) == 0 {
				b.eventSize = 0
			}
			b.markerRead = b.markerRead || b.marker != "" && string(b.line) == b.marker
			b.line = b.line[:0]
		case c != '\r' && c != ' ' && len(b.line) <= len(b.marker):
			b.line = append(b.line, c)
		}
	}
	if b.eventSize > maxEventBytes {
		return 0, ErrTooLong
	}
	if b.eventSize > b.maxEventSize {
		if err := capacity.ReservationFrom(b.ctx).ReserveBytes(b.ctx, int64(b.eventSize-b.maxEventSize)); err != nil {
			return 0, err
		}
		b.maxEventSize = b.eventSize
	}
	b.eof = b.eof || errors.Is(err, io.EOF)
	return n, err
}

// Close closes the body. It reads what little may follow a whole answer, so that the connection can be used again.
func (b *eventBody) Close() error {
	if b.markerRead && !b.eof {
		late := time.AfterFunc(drainTimeout, func() { _ = b.ReadCloser.Close() })
		defer late.Stop()
		_, _ = io.CopyN(io.Discard, b.ReadCloser, drainBytes)
	}
	return b.ReadCloser.Close()
}

// truncatingBody is a body that simply ends where it breaks off, and tells broken why.
type truncatingBody struct {
	io.ReadCloser
	bodyErr *error
}

func (q truncatingBody) Read(p []byte) (int, error) {
	n, err := q.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		*q.bodyErr = err
		err = io.EOF
	}
	return n, err
}

// Close closes the body. That it is closed already is no error.
func (q truncatingBody) Close() error {
	_ = q.ReadCloser.Close()
	return nil
}
