// Package sse writes server-sent events (WHATWG HTML, 9.2): [Writer] a stream of them, [WriteSingle] a stream of one.
package sse

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/response"
)

// MediaType is the media type of event streams.
const MediaType = "text/event-stream"

// PlainBody is a body that is written as it is, not as JSON. It must not contain a line break.
type PlainBody string

// Options configure a [Writer].
type Options struct {
	// PieceTimeout bounds each write.
	PieceTimeout time.Duration
	// KeepAlive is the longest silence: after it a comment is written.
	KeepAlive time.Duration
	// Memory is for the memory of the event that is being written; nil = no bound.
	Memory *capacity.MemoryReservation
}

// Writer writes server-sent events, and a comment whenever KeepAlive has passed without one. Every write has a deadline,
// so a client that does not read blocks its caller and the timer for a limited time only. Its methods may be called
// concurrently.
type Writer struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	options Options
	// onBroken is called with the error of a comment that could not be written: the client is gone. Only writeKeepAlive
	// calls it, which has no caller to return its error to.
	onBroken func(error)

	// mu serializes writes and guards the fields below.
	mu sync.Mutex
	// buf is one event while it is being encoded, so that it is written in one piece.
	buf bytes.Buffer
	// timer calls writeKeepAlive; flushBuffer resets it after each write.
	timer *time.Timer
	// closed is set by Close: the ResponseWriter must not be used after the handler has returned.
	closed bool
}

// maxIdleBuffer is how many bytes of buffer an idle stream may keep. Below it a reservation takes nothing from its pool
// (capacity.FreeBytes has the same size).
const maxIdleBuffer = 64 << 10

// Open writes the headers of the response and starts the timer for comments. onBroken is called if a comment cannot be
// written. The caller must call [Writer.Close].
func Open(w http.ResponseWriter, o Options, onBroken func(error)) *Writer {
	s := &Writer{w: w, rc: http.NewResponseController(w), options: o, onBroken: onBroken}
	setHeaders(w.Header())
	s.mu.Lock()
	defer s.mu.Unlock()
	w.WriteHeader(http.StatusOK)
	_ = s.rc.Flush() // a broken connection fails the first event
	s.timer = time.AfterFunc(o.KeepAlive, s.writeKeepAlive)
	return s
}

// setHeaders sets the headers of an event stream. Caches must not store it, and X-Accel-Buffering makes nginx
// pass events on at once.
func setHeaders(h http.Header) {
	h.Set("Content-Type", MediaType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
}

// WriteSingle writes a whole event stream that consists of one event. It returns an error only if body cannot be
// encoded; then nothing is written.
func WriteSingle(w http.ResponseWriter, body any) error {
	var b bytes.Buffer
	b.WriteString("data: ")
	if err := encode.AppendJSONLine(&b, body); err != nil {
		return err
	}
	b.WriteByte('\n')
	setHeaders(w.Header())
	w.WriteHeader(http.StatusOK)
	response.WritePieces(w, b.Bytes())
	return nil
}

// Close waits for a comment that is being written and stops the timer. Nothing is written after it.
func (w *Writer) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.timer.Stop()
}

// WriteEvent writes one event. name is its name, "" = none; seq its id, 0 = none. An error means that the client did not
// take it, or that nothing was written: there was no memory for it, or body has no JSON ([encode.ErrEncoding]).
func (w *Writer) WriteEvent(name string, seq int64, body any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name != "" {
		w.buf.WriteString("event: " + name + "\n")
	}
	if seq > 0 {
		w.buf.WriteString("id: ")
		w.buf.Write(strconv.AppendInt(w.buf.AvailableBuffer(), seq, 10))
		w.buf.WriteByte('\n')
	}
	w.buf.WriteString("data: ")
	if plain, ok := body.(PlainBody); ok {
		w.buf.WriteString(string(plain) + "\n")
	} else if err := encode.AppendJSONLine(&w.buf, body); err != nil {
		w.buf.Reset()
		return err
	}
	w.buf.WriteByte('\n')
	return w.flushBuffer()
}

// WriteRetry asks the client to reconnect after a second. It is the last thing on a stream.
func (w *Writer) WriteRetry() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.WriteString("retry: 1000\n\n")
	_ = w.flushBuffer()
}

// writeKeepAlive writes a comment. The timer calls it. It keeps proxies from closing a silent stream and detects
// clients that are gone.
func (w *Writer) writeKeepAlive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.buf.WriteString(": keep-alive\n\n")
	if err := w.flushBuffer(); err != nil {
		w.onBroken(err)
	}
}

// flushBuffer writes the buffer within PieceTimeout, empties it and restarts the timer for comments. The caller holds
// w.mu.
func (w *Writer) flushBuffer() error {
	err := w.options.Memory.ReserveTotal(context.Background(), int64(w.buf.Len())) // waits for capacity.MaxWait at most
	if err == nil {
		_ = w.rc.SetWriteDeadline(time.Now().Add(w.options.PieceTimeout)) // not supported by the writers of tests
		_, err = w.w.Write(w.buf.Bytes())
	}
	if err == nil {
		err = w.rc.Flush()
	}
	// One large event must not keep its memory for as long as the stream lasts.
	if w.buf.Reset(); w.buf.Cap() > maxIdleBuffer {
		w.buf = bytes.Buffer{}
		w.options.Memory.ReleaseBytes()
	}
	w.timer.Reset(w.options.KeepAlive)
	return err
}
