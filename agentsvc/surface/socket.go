package surface

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/trail"
)

const (
	maxTurns  = 16              // messages of one connection that are answered at a time
	lookEvery = 5 * time.Second // how often it is seen whether a client may still be here
	partWait  = time.Second     // for a client to return the farewell of a server that stops
)

var errCrowded = &refusal{
	code: ResourceExhausted, status: http.StatusTooManyRequests, retry: time.Second,
	text: fmt.Sprintf("%d messages of this connection are being answered, wait for one of them to end", maxTurns),
}

// Talk is how a dialect converses: it reads a message with decode, and returns how its answers sound and call, which
// submits it for a visitor or returns what is wrong with it.
type Talk func(r *http.Request, decode func(any) error) (d Dialect, call func(ctx context.Context, v *Visit) (*Following, error))

// Converse makes r's connection a WebSocket over which the client sends messages, a text frame each, and is told what
// comes of them in frames of talk's dialect. Each message is let in as a request of its own would be. The conversation
// ends with the client's leaving, with the server's streams, and when the client would not be let in any more.
func (v *Visit) Converse(w http.ResponseWriter, r *http.Request, talk Talk) error {
	srv := v.server
	knock, err := srv.knock(r)
	if err != nil {
		return err
	}
	if !srv.sockets.enter() {
		return ErrNotReady
	}
	defer srv.sockets.leave()
	conn, below, err := srv.upgrade(w, r)
	if err != nil {
		return err
	}
	s := &socket{server: srv, conn: conn, below: below, r: r, knock: knock, visit: v, talk: talk, places: make(chan struct{}, maxTurns)}
	s.ctx, s.lose = context.WithCancel(r.Context())
	srv.streams.Add(1)
	defer srv.streams.Add(-1)
	v.Leave() // who may converse for hours holds no app
	s.run()
	return nil
}

// socket is a conversation over a WebSocket.
type socket struct {
	server *Server
	conn   *websocket.Conn
	below  net.Conn
	r      *http.Request
	knock  Knock
	visit  *Visit // that opened it; each message has another
	talk   Talk

	ctx    context.Context // ends with the connection
	lose   context.CancelFunc
	work   sync.WaitGroup
	places chan struct{} // of messages that are being answered

	writing sync.Mutex
	busy    atomic.Int64 // while it is not 0 nobody may be looking for the client's pong
}

// run converses until the connection is closed.
func (s *socket) run() {
	defer s.work.Wait()
	defer s.drop()
	s.work.Go(s.tend)
	s.hear()
}

// drop ends the connection without a farewell.
func (s *socket) drop() {
	s.lose()
	_ = s.below.Close()
	_ = s.conn.CloseNow()
}

// part ends the connection with a farewell, which the client has a limited time to return.
func (s *socket) part(code websocket.StatusCode, why string, wait time.Duration) {
	late := time.AfterFunc(wait, func() { _ = s.below.Close() })
	defer late.Stop()
	_ = s.conn.Close(code, why)
}

// hear takes the client's messages in, one after the other, until it leaves.
func (s *socket) hear() {
	for {
		body, values, held, err := s.receive()
		var passed passedOver
		switch {
		case err == nil:
			s.answer(body, values, held)
		case errors.As(err, &passed):
			d, _ := s.talk(s.r, func(any) error { return passed.error })
			s.fault(d, passed.error)
		case errors.Is(err, errTooLong):
			s.part(websocket.StatusMessageTooBig, fmt.Sprintf("a message has at most %d MiB", maxMessage>>20), partWait*5)
			return
		case errors.Is(err, errBinary):
			s.part(websocket.StatusUnsupportedData, "messages are text frames", partWait)
			return
		default:
			return
		}
	}
}

var (
	errTooLong = errors.New("the message is too long")
	errBinary  = errors.New("the message is no text")
)

// passedOver is why a message was refused. The connection goes on with the next one.
type passedOver struct{ error }

// receive waits for a message, each piece of which must arrive in time once it has begun, and so must the whole. It has the room
// that is returned with it. One that is refused is passed over.
func (s *socket) receive() (body []byte, values int, held *hold, err error) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	kind, r, err := s.conn.Reader(ctx)
	if err != nil {
		return nil, 0, nil, err
	}
	s.busy.Add(1) // a client answers no ping in the middle of a frame
	defer s.busy.Add(-1)
	if kind != websocket.MessageText {
		return nil, 0, nil, errBinary
	}
	defer time.AfterFunc(s.server.options.Arrive, cancel).Stop()
	stall := s.server.options.Stall
	whole := &io.LimitedReader{R: r, N: maxMessage + 1}
	in := &timed{Reader: whole, timer: time.AfterFunc(stall, cancel), stall: stall}
	defer in.timer.Stop()
	held = &hold{}
	defer func() {
		if err != nil {
			held.release()
		}
	}()
	a := newArrival(s.ctx, s.server.rooms, s.visit.App.ID, held, cancel)
	a.pause = func() func() {
		in.timer.Stop()
		return func() { in.timer.Reset(stall) }
	}
	counted := &countedBody{Reader: in}
	body, err = takeBody(counted, -1, maxMessage, a)
	if counted.refused != nil {
		a.refuse(counted.counter.count())
		err = counted.refused
	}
	var own *refusal
	if counted.refused != nil || errors.As(err, &own) {
		held.release()
		err = passedOver{err}
		for lost := error(nil); lost == nil; {
			var n int64
			n, lost = io.CopyN(io.Discard, in, piece)
			s.server.rooms.rates.charge(s.visit.App.ID, n)
			_ = s.server.rooms.rates.wait(s.ctx, s.visit.App.ID) // the next read finds that the client is gone
			if lost != nil && !errors.Is(lost, io.EOF) {
				return nil, 0, nil, lost
			}
		}
	}
	if whole.N == 0 {
		err = errTooLong
	}
	return body, counted.counter.count(), held, err
}

// timed is a message whose every piece must arrive in time.
type timed struct {
	io.Reader
	timer *time.Timer
	stall time.Duration
}

// Read reads no more than a piece: the library fills what it is given.
func (t *timed) Read(b []byte) (int, error) {
	n, err := t.Reader.Read(b[:min(len(b), piece)])
	t.timer.Reset(t.stall)
	return n, err
}

// answer lets a message in, submits it and has its events told. The next one is heard when this one is accepted.
func (s *socket) answer(body []byte, values int, held *hold) {
	s.busy.Add(1)
	defer s.busy.Add(-1)
	defer held.release()
	d, call := s.talk(s.r, func(v any) error {
		if err := held.takeValues(s.ctx, s.server.rooms, s.visit.App.ID, len(body), values); err != nil {
			return err
		}
		return DecodeJSON(body, v, false)
	})
	select {
	case s.places <- struct{}{}:
	default:
		s.fault(d, errCrowded)
		return
	}
	ctx, span := s.server.traceMessage(s.ctx, recordOf(s.r))
	mine := recordOf(s.r).answer.Beside(1) // the connection may last for hours
	f, err := s.submit(capacity.With(ctx, mine), call)
	if err != nil {
		mine.Release()
		trail.End(span, err)
		<-s.places
		s.fault(d, err)
		s.farewell(err)
		return
	}
	s.work.Go(func() {
		defer func() { <-s.places }()
		defer span.End()
		defer mine.Release()
		s.relay(d, f)
	})
}

// turnedAway is why a client was not let in.
type turnedAway struct{ error }

func (t turnedAway) Unwrap() error { return t.error }

// enter lets the client in as if it had just come.
func (s *socket) enter(ctx context.Context) (*Visit, error) {
	ctx, cancel := s.visit.InTime(ctx)
	defer cancel()
	v, err := s.server.Enter(ctx, s.knock)
	if err != nil {
		return nil, turnedAway{err}
	}
	return v, nil
}

func (s *socket) submit(ctx context.Context, call func(context.Context, *Visit) (*Following, error)) (*Following, error) {
	v, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer v.Leave()
	return call(ctx, v)
}

// farewell ends the connection of a client that will not be let in any more.
func (s *socket) farewell(err error) {
	var away turnedAway
	if !errors.As(err, &away) {
		return
	}
	switch v := judge(err); v.code {
	case Unauthenticated:
		s.part(websocket.StatusPolicyViolation, v.text, partWait)
	case PermissionDenied, NotFound:
		s.part(websocket.StatusGoingAway, v.text, partWait)
	}
}

// relay tells what comes of a message.
func (s *socket) relay(d Dialect, f *Following) {
	defer func() {
		if p := recover(); p != nil {
			s.fault(d, fmt.Errorf("a dialect panicked: %v\n%s", p, debug.Stack()))
		}
	}()
	err := f.tell(d, func(_ int64, body any) error { return s.say(body) })
	switch {
	case err == nil && d.Done != nil:
		_ = s.say(d.Done)
	case err == nil, errors.Is(err, errGone), errors.Is(err, errEnding):
	default:
		s.fault(d, err)
	}
}

// fault tells of an error that ends the answer to a message.
func (s *socket) fault(d Dialect, err error) {
	if s.ctx.Err() != nil {
		return
	}
	s.server.logFault(s.ctx, recordOf(s.r), judge(err), err)
	_ = s.say(d.Fault(err))
}

// say writes one frame, for which the client has a limited time: one that does not take it is dropped, and goes on later
// from the last event it has seen.
func (s *socket) say(body any) error {
	var b bytes.Buffer
	if err := encodeJSON(&b, body); err != nil {
		return err
	}
	held := recordOf(s.r).answer.Beside(1)
	defer held.Release()
	if err := held.Reach(s.ctx, int64(b.Len())); err != nil {
		return err
	}
	s.busy.Add(1)
	defer s.busy.Add(-1)
	s.writing.Lock()
	defer s.writing.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, s.server.options.Stall)
	defer cancel()
	err := s.conn.Write(ctx, websocket.MessageText, bytes.TrimRight(b.Bytes(), "\n"))
	if err != nil {
		s.drop()
	}
	return err
}

// tend sees to it that the client is there and may be, until the connection ends.
func (s *socket) tend() {
	o := s.server.options
	ping, look := time.NewTicker(o.KeepAlive), time.NewTicker(min(o.KeepAlive, lookEvery))
	defer ping.Stop()
	defer look.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.server.ending.Done():
			s.part(websocket.StatusServiceRestart, "the server stops, come back", partWait)
			return
		case <-ping.C:
			s.ping()
		case <-look.C:
			if v, err := s.enter(s.ctx); err == nil {
				v.Leave()
			} else {
				s.farewell(err)
			}
		}
	}
}

// ping drops a client that does not answer, as far as it could be heard.
func (s *socket) ping() {
	ctx, cancel := context.WithTimeout(s.ctx, s.server.options.Stall)
	defer cancel()
	defer context.AfterFunc(s.server.ending, cancel)()
	if err := s.conn.Ping(ctx); err != nil && s.busy.Load() == 0 && s.server.ending.Err() == nil {
		s.drop()
	}
}
