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

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/requestbody"
	"stoa/agentsvc/surface/stream"
	"stoa/agentsvc/trail"
)

const (
	// maxConcurrentMessages bounds the messages of one connection whose turns are being reported.
	maxConcurrentMessages = 16
	// accessCheckInterval is how often a client's credential is verified again while its connection is open.
	accessCheckInterval = 5 * time.Second
	// closeTimeout is how long a client may take to answer a close frame.
	closeTimeout = time.Second
)

var errTooManyMessages = &agentsvc.Error{
	Code: apierror.CodeBodiesLimited, RetryAfter: time.Second,
	Message: fmt.Sprintf("%d messages of this connection are being answered, wait for one of them to end", maxConcurrentMessages),
}

// SocketProtocol is a protocol over a WebSocket. It is called for each message. It decodes the message by decode, and
// returns the encoder for its events and a function that submits it for an authenticated caller. An error in the
// message is returned by call, so that it can be encoded and refused like any other.
type SocketProtocol func(r *http.Request, decode func(any) error) (d stream.Encoder, call func(ctx context.Context, v *Request) (*stream.Subscription, error))

// ServeWebSocket upgrades r's connection to a WebSocket. Each text frame of the client is one message; the events of
// its turn are sent as text frames, interleaved with those of other messages. Each message is authenticated and
// admitted as a request of its own. ServeWebSocket returns an error if the handshake fails, and otherwise nil when the
// connection has ended: by the client, by [Server.EndStreams], by a write that timed out, or because the client's
// access was revoked.
func (req *Request) ServeWebSocket(w http.ResponseWriter, r *http.Request, protocol SocketProtocol) error {
	srv := req.server
	credentials, err := srv.readCredentials(r)
	if err != nil {
		return err
	}
	if !srv.sockets.addSocket() {
		return apierror.ErrNotReady
	}
	defer srv.sockets.removeSocket()
	conn, netConn, err := srv.upgradeWebSocket(w, r)
	if err != nil {
		return err
	}
	s := &socketConn{server: srv, conn: conn, netConn: netConn, r: r, credentials: credentials, request: req, protocol: protocol, slots: make(chan struct{}, maxConcurrentMessages)}
	s.ctx, s.cancel = context.WithCancel(r.Context())
	req.openStream()
	defer req.closeStream()
	// The connection may last for hours. It must not keep a revision of the app open.
	req.ReleaseApp()
	s.serveConn()
	return nil
}

// socketConn is one open WebSocket. Its goroutines are readMessages, which receives messages one after the other and
// submits them, watchConn, which sends pings and verifies the credential again, and one relayEvents for each message
// whose turn is reported. serveConn waits for all of them. Fields are set before they start and then only read, except
// where noted.
type socketConn struct {
	server *Server
	conn   *websocket.Conn
	// netConn is the connection below conn. Closing it ends every read and write at once.
	netConn net.Conn
	// r is the handshake request. Its record lasts as long as the connection: log line, trace, memory.
	r *http.Request
	// credentials are those of the handshake. They are verified again for each message.
	credentials Credentials
	// request opened the connection. Only its app's id and its server are used; each message gets a Request of its own.
	request  *Request
	protocol SocketProtocol

	// ctx ends with the connection. dropConn calls cancel.
	ctx        context.Context
	cancel     context.CancelFunc
	goroutines sync.WaitGroup
	// slots contains one value for each message whose turn is being reported.
	slots chan struct{}

	// writeMu serializes frames.
	writeMu sync.Mutex
	// busyCount counts the operations during which a missing pong proves nothing: a message is being received (a client
	// answers no ping in the middle of a frame) or handled (the pong is not read meanwhile), or a frame is being
	// written.
	busyCount atomic.Int64
}

// serveConn serves the connection until it is closed, and returns when all its goroutines have ended.
func (s *socketConn) serveConn() {
	defer s.goroutines.Wait()
	defer s.dropConn()
	s.goroutines.Go(s.watchConn)
	s.readMessages()
}

// dropConn ends the connection at once, without a close frame. It may be called more than once and concurrently.
func (s *socketConn) dropConn() {
	s.cancel()
	_ = s.netConn.Close()
	_ = s.conn.CloseNow()
}

// closeWith sends a close frame and waits at most wait for the client's answer; the connection then ends.
func (s *socketConn) closeWith(code websocket.StatusCode, reason string, wait time.Duration) {
	late := time.AfterFunc(wait, func() { _ = s.netConn.Close() })
	defer late.Stop()
	_ = s.conn.Close(code, reason)
}

// readMessages receives the client's messages until the connection ends. A message that is refused is answered by an
// error frame and the next one is received; a binary or an oversized one closes the connection.
func (s *socketConn) readMessages() {
	for {
		in := s.server.bodyBudget.NewBody(s.request.App.ID)
		message, err := s.receiveMessage(&in)
		var refused *requestbody.RefusedError
		switch {
		case err == nil:
			s.handleMessage(message, &in)
		case errors.As(err, &refused):
			d, _ := s.protocol(s.r, func(any) error { return refused.Err })
			s.writeFault(d, refused.Err)
		case errors.Is(err, errFrameTooLong):
			s.closeWith(websocket.StatusMessageTooBig, fmt.Sprintf("a message has at most %d MiB", requestbody.MaxMessage>>20), closeTimeout*5)
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
	// errFrameTooLong closes the connection with status 1009 (RFC 6455, 7.4.1).
	errFrameTooLong = errors.New("the message is too long")
	// errBinaryFrame closes the connection with status 1003.
	errBinaryFrame = errors.New("the message is no text")
)

// receiveMessage waits for the next message and reads it. Once it has begun, each piece must arrive within PieceTimeout
// and the whole within BodyTimeout, else the connection ends. The memory of its bytes is reserved in into, which the
// caller must release if there is no error. A message that is refused is a [*requestbody.RefusedError].
func (s *socketConn) receiveMessage(into *requestbody.Body) ([]byte, error) {
	// Cancelling ctx closes the connection: the library cannot give up a message in its middle.
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	kind, r, err := s.conn.Reader(ctx)
	if err != nil {
		return nil, err
	}
	s.busyCount.Add(1) // a client answers no ping in the middle of a frame
	defer s.busyCount.Add(-1)
	if kind != websocket.MessageText {
		return nil, errBinaryFrame
	}
	defer time.AfterFunc(s.server.options.BodyTimeout, cancel).Stop()
	pieceTimeout := s.server.options.PieceTimeout
	// One byte more than is allowed can be read, to distinguish a message of exactly the maximum from a longer one.
	complete := &io.LimitedReader{R: r, N: requestbody.MaxMessage + 1}
	in := &timedReader{Reader: complete, timer: time.AfterFunc(pieceTimeout, cancel), pieceTimeout: pieceTimeout}
	defer in.timer.Stop()
	// While the server does not read, the client's time for the next piece does not run.
	body, err := into.Receive(s.ctx, in, cancel, func() func() {
		in.timer.Stop()
		return func() { in.timer.Reset(pieceTimeout) }
	})
	if complete.N == 0 {
		into.Release()
		return nil, errFrameTooLong
	}
	return body, err
}

// maxRead is how many bytes one read of a message returns at most.
const maxRead = 64 << 10

// timedReader reads a message in pieces of at most maxRead bytes; timer, which ends the connection, is reset after
// each.
type timedReader struct {
	io.Reader
	timer        *time.Timer
	pieceTimeout time.Duration
}

// Read passes on at most maxRead bytes, since the library fills any buffer that it gets before it returns.
func (t *timedReader) Read(b []byte) (int, error) {
	n, err := t.Reader.Read(b[:min(len(b), maxRead)])
	t.timer.Reset(t.pieceTimeout)
	return n, err
}

// handleMessage decodes a message, submits it and starts a goroutine that reports its turn. It returns once the message
// is accepted or refused; only then the next one is received, so messages of a connection are accepted in their order.
// It releases the reservation of the body.
func (s *socketConn) handleMessage(message []byte, body *requestbody.Body) {
	s.busyCount.Add(1)
	defer s.busyCount.Add(-1)
	defer body.Release()
	d, call := s.protocol(s.r, func(v any) error {
		if err := body.ReserveReceived(s.ctx); err != nil {
			return err
		}
		return decode.JSON(message, v, false)
	})
	select {
	case s.slots <- struct{}{}:
	default:
		s.writeFault(d, errTooManyMessages)
		return
	}
	ctx, span := s.server.tracer.startMessageSpan(s.ctx, recordOf(s.r))
	// This reservation ends with the message. The request's own one lasts as long as the connection.
	messageReservation := recordOf(s.r).writer.Memory.NewPart(1)
	f, err := s.submitMessage(ctx, messageReservation, call)
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

// accessDeniedError marks an error of reauthenticate: one that may end the connection, not only the message.
type accessDeniedError struct{ error }

func (e accessDeniedError) Unwrap() error { return e.error }

// reauthenticate verifies the credentials of the handshake again and returns a Request that the caller must release.
// Its errors are accessDeniedErrors.
func (s *socketConn) reauthenticate(ctx context.Context) (*Request, error) {
	ctx, cancel := s.request.WithDeadline(ctx)
	defer cancel()
	v, err := s.server.Authenticate(ctx, s.credentials)
	if err != nil {
		return nil, accessDeniedError{err}
	}
	return v, nil
}

// submitMessage authenticates the client, so that the message runs on the app's current revision, and submits by call. What
// is read for the message reserves memory.
func (s *socketConn) submitMessage(ctx context.Context, memory *capacity.MemoryReservation, call func(context.Context, *Request) (*stream.Subscription, error)) (*stream.Subscription, error) {
	v, err := s.reauthenticate(ctx)
	if err != nil {
		return nil, err
	}
	defer v.ReleaseApp()
	v.memory, v.origin = memory, s.request.origin
	return call(ctx, v)
}

// closeIfDenied closes the connection if err says that the client's access was revoked. An unavailable dependency does
// not close it.
func (s *socketConn) closeIfDenied(err error) {
	var denied accessDeniedError
	if !errors.As(err, &denied) {
		return
	}
	switch v := apierror.Classify(err); v.Code {
	case apierror.Unauthenticated:
		s.closeWith(websocket.StatusPolicyViolation, v.Text, closeTimeout)
	case apierror.PermissionDenied, apierror.NotFound:
		s.closeWith(websocket.StatusGoingAway, v.Text, closeTimeout)
	}
}

// relayEvents writes the events of a message's turn as frames, then the protocol's DoneBody if it has one. A panic of
// the encoder ends this message only: it runs in a goroutine of its own, where net/http would not recover it.
func (s *socketConn) relayEvents(d stream.Encoder, f *stream.Subscription) {
	defer func() {
		if p := recover(); p != nil {
			s.writeFault(d, fmt.Errorf("the protocol panicked: %v\n%s", p, debug.Stack()))
		}
	}()
	err := f.WriteEvents(d, func(_ int64, body any) error { return s.writeFrame(body) })
	switch {
	case err == nil && d.DoneBody != nil:
		_ = s.writeFrame(d.DoneBody)
	case err == nil, errors.Is(err, stream.ErrClientGone), errors.Is(err, stream.ErrStreamsEnding):
	default:
		s.writeFault(d, err)
	}
}

// writeFault logs err and writes it as the last frame of a message.
func (s *socketConn) writeFault(d stream.Encoder, err error) {
	if s.ctx.Err() != nil {
		return
	}
	s.server.logError(s.ctx, recordOf(s.r), apierror.Classify(err), err)
	_ = s.writeFrame(d.EncodeError(err))
}

// writeFrame writes body as one frame within PieceTimeout. A client that does not take it loses the connection, which
// ends all its subscriptions; it can continue each of them later from the last event that it got.
func (s *socketConn) writeFrame(body any) error {
	var b bytes.Buffer
	if err := encode.AppendJSONLine(&b, body); err != nil {
		return err
	}
	retained := recordOf(s.r).writer.Memory.NewPart(1)
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

// watchConn pings the client every KeepAlive, verifies its credential every accessCheckInterval and closes the
// connection when the server stops. It returns when the connection has ended.
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

// pingClient drops the connection if the client does not answer a ping within PieceTimeout, unless busyCount says that
// the answer could not be seen.
func (s *socketConn) pingClient() {
	ctx, cancel := context.WithTimeout(s.ctx, s.server.options.PieceTimeout)
	defer cancel()
	defer context.AfterFunc(s.server.streamsCtx, cancel)()
	if err := s.conn.Ping(ctx); err != nil && s.busyCount.Load() == 0 && s.server.streamsCtx.Err() == nil {
		s.dropConn()
	}
}
