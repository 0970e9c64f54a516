package faults_test

import (
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// proxy is a wire between a process and one of its dependencies, which a test can break. It carries TCP from its own
// address to another one.
type proxy struct {
	addr   string
	target string
	listen net.Listener

	mu     sync.Mutex
	open   map[*link]struct{}
	state  wire
	closed bool
	all    sync.WaitGroup
}

// wire is the state of a proxy.
type wire struct {
	refuse bool          // new connections are closed at once
	delay  time.Duration // before each piece of data, in each direction
	in     bool          // what the process sends is swallowed
	out    bool          // what the dependency sends is swallowed
}

// The states that tests put a proxy into.
var (
	whole     = wire{}
	refused   = wire{refuse: true}
	blackHole = wire{in: true, out: true}
	halfOpen  = wire{out: true} // what is asked arrives, and no answer comes
)

// link is one connection through a proxy.
type link struct {
	near, far net.Conn
}

// newProxy returns a proxy to target, which ends with the test.
func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String(), target: target, listen: l, open: map[*link]struct{}{}}
	p.all.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listen.Close()
	p.cut()
	p.all.Wait()
}

// set puts the proxy into a state, for connections that are there as well.
func (p *proxy) set(w wire) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = w
}

func (p *proxy) now() wire {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// cut breaks every connection.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.open {
		l.close()
	}
}

func (p *proxy) accept() {
	for {
		near, err := p.listen.Accept()
		if err != nil {
			return
		}
		if p.now().refuse {
			abort(near)
			continue
		}
		p.all.Go(func() { p.carry(near) })
	}
}

func (p *proxy) carry(near net.Conn) {
	far, err := net.DialTimeout("tcp", p.target, 2*time.Second)
	if err != nil {
		abort(near)
		return
	}
	l := &link{near, far}
	p.mu.Lock()
	if p.closed {
		l.close()
	}
	p.open[l] = struct{}{}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.copy(l, far, near, func(w wire) bool { return w.in }) })
	both.Go(func() { p.copy(l, near, far, func(w wire) bool { return w.out }) })
	both.Wait()
	p.mu.Lock()
	delete(p.open, l)
	p.mu.Unlock()
}

// copy carries data until one side ends, and then ends both: neither protocol here closes one direction alone.
func (p *proxy) copy(l *link, to io.Writer, from io.Reader, swallows func(wire) bool) {
	defer l.close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		state := p.now()
		if n > 0 && state.delay > 0 {
			time.Sleep(state.delay)
			state = p.now()
		}
		if n > 0 && !swallows(state) {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *link) close() {
	_ = l.near.Close()
	_ = l.far.Close()
}

// abort ends a connection with a reset.
func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

var ports struct {
	sync.Mutex
	given []int
}

// freePort returns a port below the ones that connections are given, so that what is restarted finds it free again.
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
