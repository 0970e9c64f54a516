package surface

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
)

// StreamEncoder is how a stream sounds.
type StreamEncoder struct {
	// EncodeEvent returns the body that tells of an event, nil for one that this dialect does not tell.
	EncodeEvent func(agentsvc.Event) any
	// EncodeReply returns the body that tells of an answer that stands alone, in the place of all events; nil = as of any other.
	EncodeReply func(agentsvc.Message) any
	// EncodeError returns the body that tells of an error, the last thing on a stream.
	EncodeError func(error) any
	// EndsWhenSettled says that the stream ends when the task waits for somebody, not only when it has ended.
	EndsWhenSettled bool
	// ErrorEventName is what the event of an error is called; "" = as the others.
	ErrorEventName string
	// EventName is what the events of a stream are called that tells names; "" = they have none.
	EventName string
	// DoneBody is the body of a last event, called done where events have names, that tells of the stream's end; nil = there is
	// none. A stream that broke off does not tell it.
	DoneBody any
	// NotResumable says that nobody can come back to the stream: its events have no ids, and where the server ends it, or cannot read
	// on, it tells Fault.
	NotResumable bool
}

// Bodies is what tells of one event in more than one body.
type Bodies []any

// PlainBody is a body that is written as it is, without line breaks.
type PlainBody string

// StreamEvents writes the events that f follows as server-sent events (WHATWG HTML, 9.2) until they end, the client leaves
// or falls too far behind, or the server ends its streams. A fact carries its sequence as id, a chunk carries none. A
// stream that ends although there is more to come tells its client to come back.
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
		return nil // the client comes back with the last id it saw
	case errors.Is(err, errStreamsEnding) && d.NotResumable:
		_ = out.writeEvent(0, d.EncodeError(ErrNotReady))
		return nil
	case errors.Is(err, errStreamsEnding):
		out.writeRetry()
		return nil
	case (classifyError(err).code == Unavailable || errors.Is(err, capacity.ErrFull)) && !d.NotResumable:
		out.writeRetry()
	default:
		_ = out.writeNamedEvent(cmp.Or(d.ErrorEventName, out.eventName), 0, d.EncodeError(err))
	}
	return err
}

// sseWriter is a stream of server-sent events that is never silent for long. Its methods may be called at once.
type sseWriter struct {
	w                 http.ResponseWriter
	rc                *http.ResponseController
	reservation       *capacity.Reservation // of the event that is written
	eventName         string                // of events, "" = they have none
	pieceTimeout      time.Duration
	keepAliveInterval time.Duration
	cancel            context.CancelCauseFunc // called when the client does not take what it is sent

	mu     sync.Mutex
	buf    bytes.Buffer
	timer  *time.Timer
	closed bool
}

const maxIdleBuffer = 64 << 10

func (s *sseWriter) openStream() {
	setStreamHeaders(s.w.Header())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w.WriteHeader(http.StatusOK)
	_ = s.rc.Flush() // what is wrong with it, the first event finds out
	s.timer = time.AfterFunc(s.keepAliveInterval, s.writeKeepAlive)
}

const eventStream = "text/event-stream"

// setStreamHeaders sets the headers of a stream, which nobody is to keep or hold back.
func setStreamHeaders(h http.Header) {
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
}

// writeSingleEvent answers with a stream of one event.
func writeSingleEvent(w http.ResponseWriter, body any) error {
	var b bytes.Buffer
	b.WriteString("data: ")
	if err := writeJSONLine(&b, body); err != nil {
		return err
	}
	b.WriteByte('\n')
	setStreamHeaders(w.Header())
	w.WriteHeader(http.StatusOK)
	writePieces(w, b.Bytes())
	return nil
}

// closeStream waits for a comment under way; nothing is written after it.
func (s *sseWriter) closeStream() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.timer.Stop()
}

func (s *sseWriter) writeEvent(seq int64, body any) error {
	return s.writeNamedEvent(s.eventName, seq, body)
}

// writeDone says that the stream has come to its end, in a dialect that tells.
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
	} else if err := writeJSONLine(&s.buf, body); err != nil {
		return err
	}
	s.buf.WriteByte('\n')
	return s.flushBuffer()
}

func (s *sseWriter) writeRetry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf.WriteString("retry: 1000\n\n")
	_ = s.flushBuffer()
}

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

// flushBuffer writes the buffer, for which the client has a limited time, and begins the next silence. s.mu is held.
func (s *sseWriter) flushBuffer() error {
	err := s.reservation.ReserveTotal(context.Background(), int64(s.buf.Len())) // it waits for a limited time
	if err == nil {
		_ = s.rc.SetWriteDeadline(time.Now().Add(s.pieceTimeout)) // not every connection can
		_, err = s.w.Write(s.buf.Bytes())
	}
	if err == nil {
		err = s.rc.Flush()
	}
	if s.buf.Reset(); s.buf.Cap() > maxIdleBuffer {
		s.buf = bytes.Buffer{}
		s.reservation.ReleaseBytes()
	}
	s.timer.Reset(s.keepAliveInterval)
	return err
}

// ParseAfter returns the sequence after which a client wants to go on: its Last-Event-ID, else what it gives in the request itself,
// which browsers repeat as it was when they come back. It is nil where the client begins anew.
func ParseAfter(r *http.Request, given *int64) (*int64, error) {
	if given != nil && *given < 0 {
		return nil, agentsvc.NewInvalidError("after", "must be the id of an event")
	}
	last := strings.TrimSpace(r.Header.Get("Last-Event-ID"))
	if last == "" {
		return given, nil
	}
	n, err := strconv.ParseInt(last, 10, 64)
	if err != nil || n < 0 {
		return nil, agentsvc.NewInvalidError("Last-Event-ID", "must be the id of an event")
	}
	return &n, nil
}
