package upstream

import (
	"context"
	"errors"
	"io"
	"time"

	"stoa/agentsvc/capacity"
)

const (
	// maxEventBytes bounds one event, in bytes: the vendors' libraries read a whole event into memory. An event may
	// hold a file.
	maxEventBytes = 8 << 20
	// drainBytes and drainTimeout bound what Close reads after the end marker, so that the connection can be reused.
	drainBytes   = 4 << 10
	drainTimeout = 100 * time.Millisecond
)

// eventBody is the body of a stream of events: server-sent events (HTML living standard, section 9.2) or lines. Reading
// fails with ErrTooLong when an event exceeds maxEventBytes, and reserves the memory of the largest event. It is read
// by one goroutine.
type eventBody struct {
	io.ReadCloser
	// lineDelimited: each line is an event, see Vendor.LineDelimited.
	lineDelimited bool
	// marker is Vendor.EndMarker.
	marker string
	// ctx is the request's. memory reserves the event's memory.
	ctx    context.Context
	memory *capacity.MemoryReservation
	// eventSize is the number of bytes of the current event so far.
	eventSize int
	// maxEventSize is the size of the largest event so far, which has been reserved.
	maxEventSize int
	// line is the beginning of the current line without blanks, one byte longer than marker at most.
	line []byte
	// markerRead: the end marker was read.
	markerRead bool
	// eof: the end of the body was read.
	eof bool
}

// Read implements [io.Reader].
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
		if err := b.memory.ReserveBytes(b.ctx, int64(b.eventSize-b.maxEventSize)); err != nil {
			return 0, err
		}
		b.maxEventSize = b.eventSize
	}
	b.eof = b.eof || errors.Is(err, io.EOF)
	return n, err
}

// Close closes the body. After a complete answer it first reads the few bytes that may follow, bounded by drainBytes
// and drainTimeout: net/http reuses a connection only if the body was read to its end.
func (b *eventBody) Close() error {
	if b.markerRead && !b.eof {
		drainTimer := time.AfterFunc(drainTimeout, func() { _ = b.ReadCloser.Close() })
		defer drainTimer.Stop()
		_, _ = io.CopyN(io.Discard, b.ReadCloser, drainBytes)
	}
	return b.ReadCloser.Close()
}

// truncatingBody is a body that reports a read error as its end and stores it in bodyErr, see Vendor.EndOnReadError.
type truncatingBody struct {
	io.ReadCloser
	bodyErr *error
}

// Read implements [io.Reader].
func (b truncatingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		*b.bodyErr = err
		err = io.EOF
	}
	return n, err
}

// Close closes the body. It returns nil, also if the body is closed already: the vendor's library would log the error.
func (b truncatingBody) Close() error {
	_ = b.ReadCloser.Close()
	return nil
}
