package main

import (
	"net"
	"net/netip"
	"sync"
)

// connections bounds how many connections clients have with this process over all of its public listeners, in total and from one
// address, so that descriptors are left for files, the database and what agents call.
type connections struct {
	total, each int
	trusted     []netip.Prefix // proxies, which speak for many clients

	mu      sync.Mutex
	open    int
	from    map[netip.Prefix]int
	refused map[string]int64 // by the bound
}

// The bounds that refuse a connection.
const (
	boundTotal   = "total"
	boundAddress = "address"
)

func newConnections(total, each int, trusted []netip.Prefix) *connections {
	return &connections{total: total, each: each, trusted: trusted, from: map[netip.Prefix]int{}, refused: map[string]int64{boundTotal: 0, boundAddress: 0}}
}

// listen returns l with the bounds: what is beyond them is closed when it is accepted.
func (c *connections) listen(l net.Listener) net.Listener { return &boundedListener{l, c} }

type boundedListener struct {
	net.Listener
	connections *connections
}

// Accept returns the next connection that there is room for.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			return conn, nil // a test's
		}
		source := sourceOf(tcp)
		if l.connections.enter(source) {
			return &boundedConn{TCPConn: tcp, leave: sync.OnceFunc(func() { l.connections.leave(source) })}, nil
		}
		_ = tcp.SetLinger(0) // a reset leaves nothing behind here
		_ = tcp.Close()
	}
}

// boundedConn is a connection that counts until it is closed.
type boundedConn struct {
	*net.TCPConn
	leave func()
}

// Close closes the connection, after which another may come.
func (c *boundedConn) Close() error {
	err := c.TCPConn.Close()
	c.leave()
	return err
}

// sourceOf returns whose connection it is: an address of IPv4, or a network of IPv6 of the size that one client gets.
func sourceOf(conn *net.TCPConn) netip.Prefix {
	at, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	addr := at.AddrPort().Addr().Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() && !addr.IsLoopback() {
		bits = 64
	}
	source, _ := addr.Prefix(bits)
	return source
}

// enter counts another connection, unless that is too many.
func (c *connections) enter(source netip.Prefix) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.open >= c.total:
		c.refused[boundTotal]++
		return false
	case c.from[source] >= c.each && !c.exempt(source.Addr()):
		c.refused[boundAddress]++
		return false
	}
	c.open++
	c.from[source]++
	return true
}

// exempt reports whether an address may have any number of connections: a trusted proxy, and this machine itself, where a proxy
// of the operator's often runs that nobody has named, and which no stranger's connection comes from.
func (c *connections) exempt(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	for _, p := range c.trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

func (c *connections) leave(source netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if c.from[source]--; c.from[source] == 0 {
		delete(c.from, source)
	}
}

// count returns how many connections are open, and how many each bound has refused.
func (c *connections) count() (open int64, refused map[string]int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(c.open), map[string]int64{boundTotal: c.refused[boundTotal], boundAddress: c.refused[boundAddress]}
}

// Defaults of the bounds. A connection that says nothing takes about 20 KiB.
const (
	mostConnections   = 16_384 // however many descriptors there are
	spareDescriptors  = 256    // at least, for the database, files and what agents call
	connectionsShares = 8      // of which one address has one
)

// defaultConnections derives the bound for all connections from how many descriptors the process may have, 0 = nobody knows.
func defaultConnections(descriptors uint64) int {
	if descriptors == 0 || descriptors >= 2*mostConnections {
		return mostConnections
	}
	n := int(descriptors) //nolint:gosec // it is small
	return max(n-max(n/4, spareDescriptors), n/4, 1)
}
