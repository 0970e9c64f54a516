package surface

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/apierror"
	"stoa/authz"
)

const (
	// subprotocol is what a client may offer besides its credential, so that the handshake response, which repeats one
	// of the offers, does not need to contain the credential.
	subprotocol = "stoa.v1"
	// subprotocolPrefix begins the subprotocol that carries a bearer token. Browsers can set no other header of a
	// handshake.
	subprotocolPrefix = "bearer."
)

var (
	// errNoHandshake is for a request to a WebSocket route that is not a valid handshake.
	errNoHandshake = agentsvc.NewError(apierror.CodeMalformed, "this path speaks WebSocket (RFC 6455, version 13, over HTTP/1.1), and the request is no handshake")
)

// upgradeWebSocket upgrades r's connection to a WebSocket and also returns the network connection below it. It returns
// ErrOrigin or errNoHandshake and then has written nothing.
func (s *Server) upgradeWebSocket(w http.ResponseWriter, r *http.Request) (*websocket.Conn, net.Conn, error) {
	if !s.cors.IsAllowedOrigin(r) {
		return nil, nil, apierror.ErrOrigin
	}
	h := &handshakeWriter{ResponseWriter: w}
	// InsecureSkipVerify turns off the library's check of origins, which knows host names only: isAllowedOrigin has
	// checked.
	conn, err := websocket.Accept(h, r, &websocket.AcceptOptions{Subprotocols: []string{subprotocol, offeredBearer(r)}, InsecureSkipVerify: true})
	if err != nil {
		return nil, nil, errNoHandshake
	}
	// receiveMessage bounds messages itself, so that the close frame can contain the reason.
	conn.SetReadLimit(-1)
	return conn, h.conn, nil
}

// handshakeWriter is the ResponseWriter for a handshake. It drops the error response that the library writes for an
// invalid handshake, which the server writes in the protocol's form, and keeps the hijacked connection.
type handshakeWriter struct {
	http.ResponseWriter
	// conn is set by Hijack.
	conn net.Conn
}

// WriteHeader passes on 101 and drops every other status.
func (h *handshakeWriter) WriteHeader(status int) {
	if status == http.StatusSwitchingProtocols {
		h.ResponseWriter.WriteHeader(status)
	}
}

// Write drops b.
func (h *handshakeWriter) Write(b []byte) (int, error) { return len(b), nil }

// Hijack implements [http.Hijacker] for websocket.Accept. It fails on HTTP/2, which has no hijacking.
func (h *handshakeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	h.conn = conn
	return conn, rw, err
}

// offeredBearer returns the offered subprotocol of a handshake that carries a credential, with its prefix, "" if there
// is none.
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

// subprotocolBearer returns the bearer token that a handshake offers as a subprotocol, "" if there is none. An empty
// token is [authz.ErrUnauthenticated].
func subprotocolBearer(r *http.Request) (string, error) {
	offer := offeredBearer(r)
	if offer == subprotocolPrefix {
		return "", authz.ErrUnauthenticated
	}
	return strings.TrimPrefix(offer, subprotocolPrefix), nil
}

// socketGroup waits for the connections that were hijacked, which [http.Server.Shutdown] does not wait for. The zero
// value is ready to use.
type socketGroup struct {
	// mu guards closed, and that Add is not called once Wait may have begun.
	mu          sync.Mutex
	closed      bool
	openSockets sync.WaitGroup
}

// addSocket registers a connection. It returns false if the group is closed; otherwise removeSocket must follow.
func (s *socketGroup) addSocket() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.openSockets.Add(1)
	return true
}

// removeSocket says that a registered connection has ended.
func (s *socketGroup) removeSocket() { s.openSockets.Done() }

// closeAndWait makes addSocket return false and waits until all registered connections have ended.
func (s *socketGroup) closeAndWait() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.openSockets.Wait()
}
