package faults_test

import (
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// proxy forwards TCP between a process and one of its dependencies, and can be made to fail.
type proxy struct {
	addr     string
	target   string
	listener net.Listener

	mu     sync.Mutex
	conns  map[*proxyConn]struct{}
	state  linkState
	closed bool
	tasks  sync.WaitGroup
}

// linkState is the state of a proxy.
type linkState struct {
	refuses        bool          // new connections are closed at once
	delay          time.Duration // before each piece of data, in each direction
	dropsRequests  bool          // data of the process is dropped
	dropsResponses bool          // data of the dependency is dropped
}

// The states that tests use.
var (
	linkUp        = linkState{}
	linkRefused   = linkState{refuses: true}
	linkBlackHole = linkState{dropsRequests: true, dropsResponses: true}
	linkHalfOpen  = linkState{dropsResponses: true} // requests arrive, responses do not
)

// proxyConn is one connection through a proxy.
type proxyConn struct {
	client, target net.Conn
}

// newProxy returns a proxy to target, which ends with the test.
func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String(), target: target, listener: l, conns: map[*proxyConn]struct{}{}}
	p.tasks.Go(p.acceptConnections)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.cutConnections()
	p.tasks.Wait()
}

// setState sets the state of the proxy, also for existing connections.
func (p *proxy) setState(w linkState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = w
}

func (p *proxy) currentState() linkState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// cutConnections resets every connection.
func (p *proxy) cutConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.conns {
		l.close()
	}
}

func (p *proxy) acceptConnections() {
	for {
		clientConn, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.currentState().refuses {
			resetConnection(clientConn)
			continue
		}
		p.tasks.Go(func() { p.serveConnection(clientConn) })
	}
}

func (p *proxy) serveConnection(clientConn net.Conn) {
	targetConn, err := net.DialTimeout("tcp", p.target, 2*time.Second)
	if err != nil {
		resetConnection(clientConn)
		return
	}
	l := &proxyConn{clientConn, targetConn}
	p.mu.Lock()
	if p.closed {
		l.close()
	}
	p.conns[l] = struct{}{}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.copyData(l, targetConn, clientConn, func(w linkState) bool { return w.dropsRequests }) })
	both.Go(func() { p.copyData(l, clientConn, targetConn, func(w linkState) bool { return w.dropsResponses }) })
	both.Wait()
	p.mu.Lock()
	delete(p.conns, l)
	p.mu.Unlock()
}

// copyData forwards data until one side ends, and then ends both: neither protocol here uses half-closed connections.
func (p *proxy) copyData(l *proxyConn, to io.Writer, from io.Reader, isDropped func(linkState) bool) {
	defer l.close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		state := p.currentState()
		if n > 0 && state.delay > 0 {
			time.Sleep(state.delay)
			state = p.currentState()
		}
		if n > 0 && !isDropped(state) {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (c *proxyConn) close() {
	_ = c.client.Close()
	_ = c.target.Close()
}

// resetConnection ends a connection with a TCP reset.
func resetConnection(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

var ports struct {
	sync.Mutex
	given []int
}

// freePort returns a port below the ephemeral range, so that a restarted process finds it free.
func freePort(t testing.TB) int {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	for try := 0; try < 1000; try++ {
		port := 12000 + int(time.Now().UnixNano()/1000+int64(try)*37)%8000
		if slices.Contains(ports.given, port) {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", itoa(port)))
		if err != nil {
			continue
		}
		_ = l.Close()
		ports.given = append(ports.given, port)
		return port
	}
	t.Fatal("no port is free")
	return 0
}
