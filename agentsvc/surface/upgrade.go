package surface

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"stoa/authz"
)

const (
	// subprotocol is what a client may offer beside its credential so that the answer names this and not the credential.
	subprotocol       = "stoa.v1"
	subprotocolPrefix = "bearer."
)

var (
	errNoHandshake = &responseError{
		code: InvalidArgument, status: http.StatusBadRequest, text: "this path speaks WebSocket (RFC 6455, version 13, over HTTP/1.1), and the request is no handshake",
	}
	errOrigin = &responseError{code: PermissionDenied, status: http.StatusForbidden, text: "pages of this origin may not call here"}
)

// upgradeWebSocket makes r's connection a WebSocket. It returns the connection below as well, which ends everything at once.
func (s *Server) upgradeWebSocket(w http.ResponseWriter, r *http.Request) (*websocket.Conn, net.Conn, error) {
	if !s.cors.isAllowedOrigin(r) {
		return nil, nil, errOrigin
	}
	h := &handshakeWriter{ResponseWriter: w}
	// Its own check of origins knows hosts only; one has been made.
	conn, err := websocket.Accept(h, r, &websocket.AcceptOptions{Subprotocols: []string{subprotocol, offeredBearer(r)}, InsecureSkipVerify: true})
	if err != nil {
		return nil, nil, errNoHandshake
	}
	conn.SetReadLimit(-1) // receive has its own
	return conn, h.conn, nil
}

// handshakeWriter is an answer that may become a connection, and that keeps to itself what the library says of a request that
// is no handshake.
type handshakeWriter struct {
	http.ResponseWriter
	conn net.Conn
}

func (h *handshakeWriter) WriteHeader(status int) {
	if status == http.StatusSwitchingProtocols {
		h.ResponseWriter.WriteHeader(status)
	}
}

func (h *handshakeWriter) Write(b []byte) (int, error) { return len(b), nil }

// Hijack is what a handshake ends with. HTTP/2 has no such thing.
func (h *handshakeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	h.conn = conn
	return conn, rw, err
}

// offeredBearer returns the subprotocol of a handshake that carries a credential, for clients that cannot set headers.
func offeredBearer(r *http.Request) string {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return ""
	}
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for offer := range strings.SplitSeq(line, ",") {
			if offer = strings.TrimSpace(offer); strings.HasPrefix(offer, subprotocolPrefix) {
				return offer
			}
		}
	}
	return ""
}

// subprotocolBearer returns the credential that a handshake shows as a subprotocol, "" if it shows none.
func subprotocolBearer(r *http.Request) (string, error) {
	offer := offeredBearer(r)
	if offer == subprotocolPrefix {
		return "", authz.ErrUnauthenticated
	}
	return strings.TrimPrefix(offer, subprotocolPrefix), nil
}

// socketGroup counts the connections that have left HTTP's hands, for whom nobody else waits.
type socketGroup struct {
	mu          sync.Mutex
	closed      bool
	openSockets sync.WaitGroup
}

// addSocket takes another one in, unless there are to be no more.
func (s *socketGroup) addSocket() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.openSockets.Add(1)
	return true
}

func (s *socketGroup) removeSocket() { s.openSockets.Done() }

// closeAndWait takes no more in and waits for those that are open.
func (s *socketGroup) closeAndWait() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.openSockets.Wait()
}
