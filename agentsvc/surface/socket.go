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
	maxConcurrentMessages = 16              // messages of one connection that are answered at a time
	accessCheckInterval   = 5 * time.Second // how often it is seen whether a client may still be here
	closeTimeout          = time.Second     // for a client to return the farewell of a server that stops
)

var errTooManyMessages = &responseError{
	code: ResourceExhausted, status: http.StatusTooManyRequests, retryAfter: time.Second,
	text: fmt.Sprintf("%d messages of this connection are being answered, wait for one of them to end", maxConcurrentMessages),
}

// SocketProtocol is how a dialect converses: it reads a message with decode, and returns how its answers sound and call, which
// submits it for a visitor or returns what is wrong with it.
type SocketProtocol func(r *http.Request, decode func(any) error) (d StreamEncoder, call func(ctx context.Context, v *Request) (*Subscription, error))

// ServeWebSocket makes r's connection a WebSocket over which the client sends messages, a text frame each, and is told what
// comes of them in frames of talk's dialect. Each message is let in as a request of its own would be. The conversation
// ends with the client's leaving, with the server's streams, and when the client would not be let in any more.
func (v *Request) ServeWebSocket(w http.ResponseWriter, r *http.Request, protocol SocketProtocol) error {
	srv := v.server
	credentials, err := srv.readCredentials(r)
	if err != nil {
		return err
	}
	if !srv.sockets.addSocket() {
		return ErrNotReady
	}
	defer srv.sockets.removeSocket()
	conn, netConn, err := srv.upgradeWebSocket(w, r)
	if err != nil {
		return err
	}
	s := &socketConn{server: srv, conn: conn, netConn: netConn, r: r, credentials: credentials, request: v, protocol: protocol, slots: make(chan struct{}, maxConcurrentMessages)}
	s.ctx, s.cancel = context.WithCancel(r.Context())
	srv.openStreams.Add(1)
	defer srv.openStreams.Add(-1)
	v.ReleaseApp() // who may converse for hours holds no app
	s.serveConn()
	return nil
}

// socketConn is a conversation over a WebSocket.
type socketConn struct {
	server      *Server
	conn        *websocket.Conn
	netConn     net.Conn
	r           *http.Request
	credentials Credentials
	request     *Request // that opened it; each message has another
	protocol    SocketProtocol

	ctx        context.Context // ends with the connection
	cancel     context.CancelFunc
	goroutines sync.WaitGroup
	slots      chan struct{} // of messages that are being answered

	writeMu   sync.Mutex
	busyCount atomic.Int64 // while it is not 0 nobody may be looking for the client's pong
}

// serveConn converses until the connection is closed.
func (s *socketConn) serveConn() {
	defer s.goroutines.Wait()
	defer s.dropConn()
	s.goroutines.Go(s.watchConn)
	s.readMessages()
}

// dropConn ends the connection without a farewell.
func (s *socketConn) dropConn() {
	s.cancel()
	_ = s.netConn.Close()
	_ = s.conn.CloseNow()
}

// closeWith ends the connection with a farewell, which the client has a limited time to return.
func (s *socketConn) closeWith(code websocket.StatusCode, reason string, wait time.Duration) {
	late := time.AfterFunc(wait, func() { _ = s.netConn.Close() })
	defer late.Stop()
	_ = s.conn.Close(code, reason)
}

// readMessages takes the client's messages in, one after the other, until it leaves.
func (s *socketConn) readMessages() {
	for {
		body, values, retained, err := s.receiveMessage()
		var skipped skippedMessage
		switch {
		case err == nil:
			s.handleMessage(body, values, retained)
		case errors.As(err, &skipped):
			d, _ := s.protocol(s.r, func(any) error { return skipped.error })
			s.writeFault(d, skipped.error)
		case errors.Is(err, errFrameTooLong):
			s.closeWith(websocket.StatusMessageTooBig, fmt.Sprintf("a message has at most %d MiB", maxMessage>>20), closeTimeout*5)
			return
		case errors.Is(err, errBinaryFrame):
			s.closeWith(websocket.StatusUnsupportedData, "messages are text frames", closeTimeout)
			return
		default:
			return
		}
	}
}

var (
	errFrameTooLong = errors.New("the message is too long")
	errBinaryFrame  = errors.New("the message is no text")
)

// skippedMessage is why a message was refused. The connection goes on with the next one.
type skippedMessage struct{ error }

// receiveMessage waits for a message, each piece of which must arrive in time once it has begun, and so must the whole. It has the room
// that is returned with it. One that is refused is passed over.
func (s *socketConn) receiveMessage() (body []byte, values int, retained *bodyReservation, err error) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	kind, r, err := s.conn.Reader(ctx)
	if err != nil {
		return nil, 0, nil, err
	}
	s.busyCount.Add(1) // a client answers no ping in the middle of a frame
	defer s.busyCount.Add(-1)
	if kind != websocket.MessageText {
		return nil, 0, nil, errBinaryFrame
	}
	defer time.AfterFunc(s.server.options.BodyTimeout, cancel).Stop()
	pieceTimeout := s.server.options.PieceTimeout
	complete := &io.LimitedReader{R: r, N: maxMessage + 1}
	in := &timedReader{Reader: complete, timer: time.AfterFunc(pieceTimeout, cancel), pieceTimeout: pieceTimeout}
	defer in.timer.Stop()
	retained = &bodyReservation{}
	defer func() {
		if err != nil {
			retained.release()
		}
	}()
	a := newBodyMeter(s.ctx, s.server.bodyBudget, s.request.App.ID, retained, cancel)
	a.pause = func() func() {
		in.timer.Stop()
		return func() { in.timer.Reset(pieceTimeout) }
	}
	counted := &countedBody{Reader: in}
	body, err = readMetered(counted, -1, maxMessage, a)
	if counted.refused != nil {
		a.chargeRefused(counted.counter.totalValues())
		err = counted.refused
	}
	var own *responseError
	if counted.refused != nil || errors.As(err, &own) {
		retained.release()
		err = skippedMessage{err}
		for lost := error(nil); lost == nil; {
			var n int64
			n, lost = io.CopyN(io.Discard, in, pieceSize)
			s.server.bodyBudget.rates.chargeApp(s.request.App.ID, n)
			_ = s.server.bodyBudget.rates.waitForDebt(s.ctx, s.request.App.ID) // the next read finds that the client is gone
			if lost != nil && !errors.Is(lost, io.EOF) {
				return nil, 0, nil, lost
			}
		}
	}
	if complete.N == 0 {
		err = errFrameTooLong
	}
	return body, counted.counter.totalValues(), retained, err
}

// timedReader is a message whose every piece must arrive in time.
type timedReader struct {
	io.Reader
	timer        *time.Timer
	pieceTimeout time.Duration
}

// Read reads no more than a piece: the library fills what it is given.
func (t *timedReader) Read(b []byte) (int, error) {
	n, err := t.Reader.Read(b[:min(len(b), pieceSize)])
	t.timer.Reset(t.pieceTimeout)
	return n, err
}

// handleMessage lets a message in, submits it and has its events told. The next one is heard when this one is accepted.
func (s *socketConn) handleMessage(body []byte, values int, retained *bodyReservation) {
	s.busyCount.Add(1)
	defer s.busyCount.Add(-1)
	defer retained.release()
	d, call := s.protocol(s.r, func(v any) error {
		if err := retained.reserveDecoded(s.ctx, s.server.bodyBudget, s.request.App.ID, len(body), values); err != nil {
			return err
		}
		return DecodeJSON(body, v, false)
	})
	select {
	case s.slots <- struct{}{}:
	default:
		s.writeFault(d, errTooManyMessages)
		return
	}
	ctx, span := s.server.startMessageSpan(s.ctx, recordOf(s.r))
	messageReservation := recordOf(s.r).responseReservation.NewPart(1) // the connection may last for hours
	f, err := s.submitMessage(capacity.WithReservation(ctx, messageReservation), call)
	if err != nil {
		messageReservation.ReleaseBytes()
		trail.EndSpan(span, err)
		<-s.slots
		s.writeFault(d, err)
		s.closeIfDenied(err)
		return
	}
	s.goroutines.Go(func() {
		defer func() { <-s.slots }()
		defer span.End()
		defer messageReservation.ReleaseBytes()
		s.relayEvents(d, f)
	})
}

// accessDeniedError is why a client was not let in.
type accessDeniedError struct{ error }

func (t accessDeniedError) Unwrap() error { return t.error }

// reauthenticate lets the client in as if it had just come.
func (s *socketConn) reauthenticate(ctx context.Context) (*Request, error) {
	ctx, cancel := s.request.WithDeadline(ctx)
	defer cancel()
	v, err := s.server.Authenticate(ctx, s.credentials)
	if err != nil {
		return nil, accessDeniedError{err}
	}
	return v, nil
}

func (s *socketConn) submitMessage(ctx context.Context, call func(context.Context, *Request) (*Subscription, error)) (*Subscription, error) {
	v, err := s.reauthenticate(ctx)
	if err != nil {
		return nil, err
	}
	defer v.ReleaseApp()
	return call(ctx, v)
}

// closeIfDenied ends the connection of a client that will not be let in any more.
func (s *socketConn) closeIfDenied(err error) {
	var denied accessDeniedError
	if !errors.As(err, &denied) {
		return
	}
	switch v := classifyError(err); v.code {
	case Unauthenticated:
		s.closeWith(websocket.StatusPolicyViolation, v.text, closeTimeout)
	case PermissionDenied, NotFound:
		s.closeWith(websocket.StatusGoingAway, v.text, closeTimeout)
	}
}

// relayEvents tells what comes of a message.
func (s *socketConn) relayEvents(d StreamEncoder, f *Subscription) {
	defer func() {
		if p := recover(); p != nil {
			s.writeFault(d, fmt.Errorf("a dialect panicked: %v\n%s", p, debug.Stack()))
		}
	}()
	err := f.writeEvents(d, func(_ int64, body any) error { return s.writeFrame(body) })
	switch {
	case err == nil && d.DoneBody != nil:
		_ = s.writeFrame(d.DoneBody)
	case err == nil, errors.Is(err, errClientGone), errors.Is(err, errStreamsEnding):
	default:
		s.writeFault(d, err)
	}
}

// writeFault tells of an error that ends the answer to a message.
func (s *socketConn) writeFault(d StreamEncoder, err error) {
	if s.ctx.Err() != nil {
		return
	}
	s.server.logError(s.ctx, recordOf(s.r), classifyError(err), err)
	_ = s.writeFrame(d.EncodeError(err))
}

// writeFrame writes one frame, for which the client has a limited time: one that does not take it is dropped, and goes on later
// from the last event it has seen.
func (s *socketConn) writeFrame(body any) error {
	var b bytes.Buffer
	if err := writeJSONLine(&b, body); err != nil {
		return err
	}
	retained := recordOf(s.r).responseReservation.NewPart(1)
	defer retained.ReleaseBytes()
	if err := retained.ReserveTotal(s.ctx, int64(b.Len())); err != nil {
		return err
	}
	s.busyCount.Add(1)
	defer s.busyCount.Add(-1)
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, s.server.options.PieceTimeout)
	defer cancel()
	err := s.conn.Write(ctx, websocket.MessageText, bytes.TrimRight(b.Bytes(), "\n"))
	if err != nil {
		s.dropConn()
	}
	return err
}

// watchConn sees to it that the client is there and may be, until the connection ends.
func (s *socketConn) watchConn() {
	o := s.server.options
	ping, accessTicker := time.NewTicker(o.KeepAlive), time.NewTicker(min(o.KeepAlive, accessCheckInterval))
	defer ping.Stop()
	defer accessTicker.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.server.streamsCtx.Done():
			s.closeWith(websocket.StatusServiceRestart, "the server stops, come back", closeTimeout)
			return
		case <-ping.C:
			s.pingClient()
		case <-accessTicker.C:
			if v, err := s.reauthenticate(s.ctx); err == nil {
				v.ReleaseApp()
			} else {
				s.closeIfDenied(err)
			}
		}
	}
}

// pingClient drops a client that does not answer, as far as it could be heard.
func (s *socketConn) pingClient() {
	ctx, cancel := context.WithTimeout(s.ctx, s.server.options.PieceTimeout)
	defer cancel()
	defer context.AfterFunc(s.server.streamsCtx, cancel)()
	if err := s.conn.Ping(ctx); err != nil && s.busyCount.Load() == 0 && s.server.streamsCtx.Err() == nil {
		s.dropConn()
	}
}
