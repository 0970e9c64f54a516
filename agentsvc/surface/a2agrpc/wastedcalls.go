package a2agrpc

import (
	"context"
	"net"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"stoa/agentsvc/surface"
)

// Bounds of the wasted calls of a connection: those that its client cancels and those of unknown methods. They cost
// the server as much as others and the client nearly nothing, and are not among the calls in progress when the next
// ones begin, so that surface.MaxStreams does not bound them. A client may cancel all its calls at once.
const (
	maxWastedCalls = surface.MaxStreams
	wastedCallRate = 100 // per second
)

// boundedListener accepts connections that countWasted closes, except those of proxies: each carries the calls of many
// clients, which one of them must not end.
type boundedListener struct {
	net.Listener
	isProxy func(address string) bool
}

func (l boundedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if l.isProxy(conn.RemoteAddr().String()) {
		return conn, nil
	}
	return &boundedConn{conn, rate.NewLimiter(wastedCallRate, maxWastedCalls)}, nil
}

// boundedConn is a connection with what it may still waste.
type boundedConn struct {
	net.Conn
	wasted *rate.Limiter
}

// RemoteAddr returns the client's address with the connection: of a connection gRPC passes calls the address only.
func (c *boundedConn) RemoteAddr() net.Addr { return connAddr{c.Conn.RemoteAddr(), c} }

type connAddr struct {
	net.Addr
	conn *boundedConn
}

// countWasted counts a wasted call, and closes its connection if there were too many.
func countWasted(ctx context.Context) {
	caller, _ := peer.FromContext(ctx)
	if at, ok := caller.Addr.(connAddr); ok && !at.conn.wasted.Allow() {
		_ = at.conn.Close()
	}
}

// countUnknown counts a call of an unknown method, or whose time is over already, as wasted. gRPC refuses such calls
// without an interceptor.
func (s *Server) countUnknown(ctx context.Context, call *tap.Info) (context.Context, error) {
	if !s.methods[call.FullMethodName] || ctx.Err() != nil {
		countWasted(ctx)
	}
	return ctx, nil
}
