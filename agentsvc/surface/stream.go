package surface

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/response"
)

// StreamEncoder is how a protocol encodes the events of a subscription, over any transport. EncodeEvent and EncodeError
// are required.
type StreamEncoder struct {
	// EncodeEvent returns the body of an event, [Bodies] if it needs several, or nil if the protocol does not report
	// it.
	EncodeEvent func(agentsvc.Event) any
	// EncodeReply returns the body of a standalone reply (an A2A message without a task), which replaces all events of
	// the turn; nil = such a reply is reported as a task.
	EncodeReply func(agentsvc.Message) any
	// EncodeError returns the body of an error. It is the last body of a stream.
	EncodeError func(error) any
	// EndsWhenSettled ends the stream also when the task waits for input, a decision or a credential, not only when it
	// ended.
	EndsWhenSettled bool
	// ErrorEventName is the name of the server-sent event of an error; "" = EventName.
	ErrorEventName string
	// EventName is the name of the server-sent events; "" = they have none, so browsers deliver them as "message".
	EventName string
	// DoneBody is the body of a last event that marks the regular end of the stream; nil = there is none. It is named
	// "done" if EventName is set. A stream that was interrupted does not end with it.
	DoneBody any
	// NotResumable says that the protocol has no way to continue a stream. Its events then have no ids, and a stream
	// that the server cannot continue ends with an error in place of a retry hint.
	NotResumable bool
}

// Bodies is the encoding of one event as more than one body. They share the event's sequence.
type Bodies []any

// PlainBody is a body that is written as it is, not as JSON. It must not contain a line break.
type PlainBody string

// StreamEvents writes the events of f as server-sent events (WHATWG HTML, 9.2) and closes f. It returns when the events
// end, the client disconnects or does not take an event within PieceTimeout, its access is revoked, or the server ends
// its streams.
//
// A fact has its sequence as id, a delta has none: a client that reconnects with Last-Event-ID gets every fact after
// it, and deltas that it lost are contained in the fact that follows them. A stream that ends before its task does ends
// with "retry: 1000", which makes an EventSource reconnect after a second. An error of the client's own is not
// returned. Other errors were already written to the stream when they are returned, for the log.
func (v *Request) StreamEvents(w http.ResponseWriter, f *Subscription, d StreamEncoder) error {
	defer f.Close()
	v.server.openStreams.Add(1)
	defer v.server.openStreams.Add(-1)
	o := v.server.options
	out := &sseWriter{w: w, rc: http.NewResponseController(w), reservation: v.newPartReservation(), eventName: d.EventName, pieceTimeout: o.PieceTimeout, keepAliveInterval: o.KeepAlive, cancel: f.cancel}
	out.openStream()
	defer out.closeStream()
	err := f.writeEvents(d, func(seq int64, body any) error {
		if d.NotResumable {
			seq = 0
		}
		return out.writeEvent(seq, body)
	})
	switch {
	case err == nil:
		out.writeDone(d)
	case errors.Is(err, errClientGone):
		return nil // the client can resume after the last id that it got
	case errors.Is(err, errStreamsEnding) && d.NotResumable:
		_ = out.writeEvent(0, d.EncodeError(apierror.ErrNotReady))
		return nil
	// The client reconnects to another process, which has the same log.
	case errors.Is(err, errStreamsEnding):
		out.writeRetry()
		return nil
	// The log may be readable again in a second, here or in another process.
	case (apierror.Classify(err).Code == apierror.Unavailable || errors.Is(err, capacity.ErrFull)) && !d.NotResumable:
		out.writeRetry()
	// 200 has been sent, so the error can only be an event.
	default:
		_ = out.writeNamedEvent(cmp.Or(d.ErrorEventName, out.eventName), 0, d.EncodeError(err))
	}
	return err
}

// sseWriter writes server-sent events and a comment whenever KeepAlive has passed without one. Every write has a
// deadline, so a client that does not read blocks the subscription and the timer for a limited time only. Its methods
// may be called concurrently.
type sseWriter struct {
	w  http.ResponseWriter
	rc *http.ResponseController
	// reservation is for the memory of the event that is being written; nil = no bound.
	reservation *capacity.Reservation
	// eventName is [StreamEncoder].EventName.
	eventName string
	// pieceTimeout is for each write, keepAliveInterval between two writes.
	pieceTimeout      time.Duration
	keepAliveInterval time.Duration
	// cancel ends the subscription. Only writeKeepAlive calls it, which has no caller to return its error to.
	cancel context.CancelCauseFunc

	// mu serializes writes and guards the fields below.
	mu sync.Mutex
	// buf is one event while it is being encoded, so that it is written in one piece.
	buf bytes.Buffer
	// timer calls writeKeepAlive; flushBuffer resets it after each write.
	timer *time.Timer
	// closed is set by closeStream: the ResponseWriter must not be used after the handler has returned.
	closed bool
}

// maxIdleBuffer is how many bytes of buffer an idle stream may keep. Below it a reservation takes nothing from its pool
// (capacity.FreeBytes has the same size).
const maxIdleBuffer = 64 << 10

// openStream writes the response headers and starts the timer for comments.
func (s *sseWriter) openStream() {
	setStreamHeaders(s.w.Header())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w.WriteHeader(http.StatusOK)
	_ = s.rc.Flush() // a broken connection fails the first event
	s.timer = time.AfterFunc(s.keepAliveInterval, s.writeKeepAlive)
}

const eventStream = "text/event-stream"

// setStreamHeaders sets the headers of an event stream. Caches must not store it, and X-Accel-Buffering makes nginx
// pass events on at once.
func setStreamHeaders(h http.Header) {
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
}

// writeSingleEvent writes a whole event stream that consists of one event. It returns an error only if body cannot be
// encoded; then nothing is written.
func writeSingleEvent(w http.ResponseWriter, body any) error {
	var b bytes.Buffer
	b.WriteString("data: ")
	if err := encode.AppendJSONLine(&b, body); err != nil {
		return err
	}
	b.WriteByte('\n')
	setStreamHeaders(w.Header())
	w.WriteHeader(http.StatusOK)
	response.WritePieces(w, b.Bytes())
	return nil
}

// closeStream waits for a comment that is being written and stops the timer. Nothing is written after it.
func (s *sseWriter) closeStream() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.timer.Stop()
}

// writeEvent writes one event. seq is its id, 0 = it has none. An error means that the client did not take it, or that
// there was no memory for it.
func (s *sseWriter) writeEvent(seq int64, body any) error {
	return s.writeNamedEvent(s.eventName, seq, body)
}

// writeDone writes the event that marks the regular end of the stream, if the protocol has one.
func (s *sseWriter) writeDone(d StreamEncoder) {
	if d.DoneBody == nil {
		return
	}
	name := ""
	if d.EventName != "" {
		name = "done"
	}
	_ = s.writeNamedEvent(name, 0, d.DoneBody)
}

// writeNamedEvent is writeEvent with a name for the event, "" = none.
func (s *sseWriter) writeNamedEvent(name string, seq int64, body any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != "" {
		s.buf.WriteString("event: " + name + "\n")
	}
	if seq > 0 {
		s.buf.WriteString("id: ")
		s.buf.Write(strconv.AppendInt(s.buf.AvailableBuffer(), seq, 10))
		s.buf.WriteByte('\n')
	}
	s.buf.WriteString("data: ")
	if plain, ok := body.(PlainBody); ok {
		s.buf.WriteString(string(plain) + "\n")
	} else if err := encode.AppendJSONLine(&s.buf, body); err != nil {
		return err
	}
	s.buf.WriteByte('\n')
	return s.flushBuffer()
}

// writeRetry asks the client to reconnect after a second. It is the last thing on a stream.
func (s *sseWriter) writeRetry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf.WriteString("retry: 1000\n\n")
	_ = s.flushBuffer()
}

// writeKeepAlive writes a comment. The timer calls it. It keeps proxies from closing a silent stream and detects
// clients that are gone: then the subscription ends.
func (s *sseWriter) writeKeepAlive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.buf.WriteString(": keep-alive\n\n")
	if err := s.flushBuffer(); err != nil {
		s.cancel(err)
	}
}

// flushBuffer writes the buffer within pieceTimeout, empties it and restarts the timer for comments. The caller holds
// s.mu.
func (s *sseWriter) flushBuffer() error {
	err := s.reservation.ReserveTotal(context.Background(), int64(s.buf.Len())) // waits for capacity.MaxWait at most
	if err == nil {
		_ = s.rc.SetWriteDeadline(time.Now().Add(s.pieceTimeout)) // not supported by the writers of tests
		_, err = s.w.Write(s.buf.Bytes())
	}
	if err == nil {
		err = s.rc.Flush()
	}
	// One large event must not keep its memory for as long as the stream lasts.
	if s.buf.Reset(); s.buf.Cap() > maxIdleBuffer {
		s.buf = bytes.Buffer{}
		s.reservation.ReleaseBytes()
	}
	s.timer.Reset(s.keepAliveInterval)
	return err
}
