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

// Dialect is how a stream sounds.
type Dialect struct {
	// Event returns the body that tells of an event, nil for one that this dialect does not tell.
	Event func(agentsvc.Event) any
	// Reply returns the body that tells of an answer that stands alone, in the place of all events; nil = as of any other.
	Reply func(agentsvc.Message) any
	// Fault returns the body that tells of an error, the last thing on a stream.
	Fault func(error) any
	// Rests says that the stream ends when the task waits for somebody, not only when it has ended.
	Rests bool
	// FaultName is what the event of an error is called; "" = as the others.
	FaultName string
	// Name is what the events of a stream are called that tells names; "" = they have none.
	Name string
	// Done is the body of a last event, called done where events have names, that tells of the stream's end; nil = there is
	// none. A stream that broke off does not tell it.
	Done any
	// Single says that nobody can come back to the stream: its events have no ids, and where the server ends it, or cannot read
	// on, it tells Fault.
	Single bool
}

// Several is what tells of one event in more than one body.
type Several []any

// Plain is a body that is written as it is, without line breaks.
type Plain string

// Stream writes the events that f follows as server-sent events (WHATWG HTML, 9.2) until they end, the client leaves
// or falls too far behind, or the server ends its streams. A fact carries its sequence as id, a chunk carries none. A
// stream that ends although there is more to come tells its client to come back.
func (v *Visit) Stream(w http.ResponseWriter, f *Following, d Dialect) error {
	defer f.Close()
	v.server.streams.Add(1)
	defer v.server.streams.Add(-1)
	o := v.server.options
	out := &sse{w: w, rc: http.NewResponseController(w), held: v.holdBeside(), name: d.Name, stall: o.Stall, every: o.KeepAlive, lost: f.cancel}
	out.open()
	defer out.close()
	err := f.tell(d, func(seq int64, body any) error {
		if d.Single {
			seq = 0
		}
		return out.event(seq, body)
	})
	switch {
	case err == nil:
		out.done(d)
	case errors.Is(err, errGone):
		return nil // the client comes back with the last id it saw
	case errors.Is(err, errEnding) && d.Single:
		_ = out.event(0, d.Fault(ErrNotReady))
		return nil
	case errors.Is(err, errEnding):
		out.comeBack()
		return nil
	case (judge(err).code == Unavailable || errors.Is(err, capacity.ErrFull)) && !d.Single:
		out.comeBack()
	default:
		_ = out.say(cmp.Or(d.FaultName, out.name), 0, d.Fault(err))
	}
	return err
}

// sse is a stream of server-sent events that is never silent for long. Its methods may be called at once.
type sse struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	held  *capacity.Hold // of the event that is written
	name  string         // of events, "" = they have none
	stall time.Duration
	every time.Duration
	lost  context.CancelCauseFunc // called when the client does not take what it is sent

	mu     sync.Mutex
	buf    bytes.Buffer
	timer  *time.Timer
	closed bool
}

const keptBuffer = 64 << 10

func (s *sse) open() {
	announce(s.w.Header())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w.WriteHeader(http.StatusOK)
	_ = s.rc.Flush() // what is wrong with it, the first event finds out
	s.timer = time.AfterFunc(s.every, s.keepAlive)
}

const eventStream = "text/event-stream"

// announce sets the headers of a stream, which nobody is to keep or hold back.
func announce(h http.Header) {
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
}

// writeEvent answers with a stream of one event.
func writeEvent(w http.ResponseWriter, body any) error {
	var b bytes.Buffer
	b.WriteString("data: ")
	if err := encodeJSON(&b, body); err != nil {
		return err
	}
	b.WriteByte('\n')
	announce(w.Header())
	w.WriteHeader(http.StatusOK)
	send(w, b.Bytes())
	return nil
}

// close waits for a comment under way; nothing is written after it.
func (s *sse) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.timer.Stop()
}

func (s *sse) event(seq int64, body any) error {
	return s.say(s.name, seq, body)
}

// done says that the stream has come to its end, in a dialect that tells.
func (s *sse) done(d Dialect) {
	if d.Done == nil {
		return
	}
	name := ""
	if d.Name != "" {
		name = "done"
	}
	_ = s.say(name, 0, d.Done)
}

func (s *sse) say(name string, seq int64, body any) error {
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
	if plain, ok := body.(Plain); ok {
		s.buf.WriteString(string(plain) + "\n")
	} else if err := encodeJSON(&s.buf, body); err != nil {
		return err
	}
	s.buf.WriteByte('\n')
	return s.send()
}

func (s *sse) comeBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf.WriteString("retry: 1000\n\n")
	_ = s.send()
}

func (s *sse) keepAlive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.buf.WriteString(": keep-alive\n\n")
	if err := s.send(); err != nil {
		s.lost(err)
	}
}

// send writes the buffer, for which the client has a limited time, and begins the next silence. s.mu is held.
func (s *sse) send() error {
	err := s.held.Reach(context.Background(), int64(s.buf.Len())) // it waits for a limited time
	if err == nil {
		_ = s.rc.SetWriteDeadline(time.Now().Add(s.stall)) // not every connection can
		_, err = s.w.Write(s.buf.Bytes())
	}
	if err == nil {
		err = s.rc.Flush()
	}
	if s.buf.Reset(); s.buf.Cap() > keptBuffer {
		s.buf = bytes.Buffer{}
		s.held.Release()
	}
	s.timer.Reset(s.every)
	return err
}

// After returns the sequence after which a client wants to go on: its Last-Event-ID, else what it gives in the request itself,
// which browsers repeat as it was when they come back. It is nil where the client begins anew.
func After(r *http.Request, given *int64) (*int64, error) {
	if given != nil && *given < 0 {
		return nil, agentsvc.Invalid("after", "must be the id of an event")
	}
	last := strings.TrimSpace(r.Header.Get("Last-Event-ID"))
	if last == "" {
		return given, nil
	}
	n, err := strconv.ParseInt(last, 10, 64)
	if err != nil || n < 0 {
		return nil, agentsvc.Invalid("Last-Event-ID", "must be the id of an event")
	}
	return &n, nil
}
