package main

import (
	"net"
	"net/netip"
	"sync"
)

// connectionLimiter bounds how many connections clients have with this process over all of its public listeners, in total and from one
// address, so that descriptors are left for files, the database and what agents call.
type connectionLimiter struct {
	maxTotal, maxPerAddress int
	trustedProxies          []netip.Prefix // proxies, which speak for many clients

	mu           sync.Mutex
	open         int
	openBySource map[netip.Prefix]int
	refused      map[string]int64 // by the bound
}

// The bounds that refuse a connection.
const (
	boundTotal   = "total"
	boundAddress = "address"
)

func newConnectionLimiter(total, each int, trusted []netip.Prefix) *connectionLimiter {
	return &connectionLimiter{maxTotal: total, maxPerAddress: each, trustedProxies: trusted, openBySource: map[netip.Prefix]int{}, refused: map[string]int64{boundTotal: 0, boundAddress: 0}}
}

// limitListener returns l with the bounds: what is beyond them is closed when it is accepted.
func (c *connectionLimiter) limitListener(l net.Listener) net.Listener { return &limitedListener{l, c} }

type limitedListener struct {
	net.Listener
	limiter *connectionLimiter
}

// Accept returns the next connection that there is room for.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			return conn, nil // a test's
		}
		source := sourcePrefix(tcp)
		if l.limiter.acquire(source) {
			return &limitedConn{TCPConn: tcp, release: sync.OnceFunc(func() { l.limiter.release(source) })}, nil
		}
		_ = tcp.SetLinger(0) // a reset leaves nothing behind here
		_ = tcp.Close()
	}
}

// limitedConn is a connection that counts until it is closed.
type limitedConn struct {
	*net.TCPConn
	release func()
}

// Close closes the connection, after which another may come.
func (c *limitedConn) Close() error {
	err := c.TCPConn.Close()
	c.release()
	return err
}

// sourcePrefix returns whose connection it is: an address of IPv4, or a network of IPv6 of the size that one client gets.
func sourcePrefix(conn *net.TCPConn) netip.Prefix {
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

// acquire counts another connection, unless that is too many.
func (c *connectionLimiter) acquire(source netip.Prefix) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.open >= c.maxTotal:
		c.refused[boundTotal]++
		return false
	case c.openBySource[source] >= c.maxPerAddress && !c.isExempt(source.Addr()):
		c.refused[boundAddress]++
		return false
	}
	c.open++
	c.openBySource[source]++
	return true
}

// isExempt reports whether an address may have any number of connections: a trusted proxy, and this machine itself, where a proxy
// of the operator's often runs that nobody has named, and which no stranger's connection comes from.
func (c *connectionLimiter) isExempt(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	for _, p := range c.trustedProxies {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

func (c *connectionLimiter) release(source netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if c.openBySource[source]--; c.openBySource[source] == 0 {
		delete(c.openBySource, source)
	}
}

// readCounts returns how many connections are open, and how many each bound has refused.
func (c *connectionLimiter) readCounts() (open int64, refused map[string]int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(c.open), map[string]int64{boundTotal: c.refused[boundTotal], boundAddress: c.refused[boundAddress]}
}

// Defaults of the bounds. A connection that says nothing takes about 20 KiB.
const (
	maxDefaultConnections = 16_384 // however many descriptors there are
	spareDescriptors      = 256    // at least, for the database, files and what agents call
	addressShares         = 8      // of which one address has one
)

// defaultMaxConnections derives the bound for all connections from how many descriptors the process may have, 0 = nobody knows.
func defaultMaxConnections(descriptors uint64) int {
	if descriptors == 0 || descriptors >= 2*maxDefaultConnections {
		return maxDefaultConnections
	}
	n := int(descriptors) //nolint:gosec // it is small
	return max(n-max(n/4, spareDescriptors), n/4, 1)
}
