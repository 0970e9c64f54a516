package listener

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// Limiter bounds the connections of clients over all public listeners of the process, in total and for each
// client address, so that file descriptors remain for files, the database and outgoing calls. A connection beyond a
// bound is reset when it is accepted, before a TLS handshake or an HTTP response has cost anything.
type Limiter struct {
	maxTotal, maxPerAddress int            // set by NewLimiter, then read-only
	trustedProxies          []netip.Prefix // exempt from maxPerAddress: each carries many clients

	// mu guards the fields below.
	mu           sync.Mutex
	open         int
	openBySource map[netip.Prefix]int // by sourcePrefix; without entries of 0
	refused      map[string]int64     // since the start, by bound
}

// Names of the bounds, as the metric stoa_client_connections_refused shows them.
const (
	boundTotal   = "total"
	boundAddress = "address"
)

// NewLimiter returns a limiter of total connections, of which each source may have each.
func NewLimiter(total, each int, trusted []netip.Prefix) *Limiter {
	return &Limiter{maxTotal: total, maxPerAddress: each, trustedProxies: trusted, openBySource: map[netip.Prefix]int{}, refused: map[string]int64{boundTotal: 0, boundAddress: 0}}
}

// LimitListener returns l with the bounds applied. Several listeners may share one limiter.
func (lim *Limiter) LimitListener(l net.Listener) net.Listener { return &limitedListener{l, lim} }

// limitedListener accepts connections within the bounds of its limiter.
type limitedListener struct {
	net.Listener
	limiter *Limiter
}

// Accept returns the next connection within the bounds and resets those beyond.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			return conn, nil // not TCP: only in tests
		}
		source := sourcePrefix(tcp)
		if l.limiter.acquire(source) {
			return &limitedConn{TCPConn: tcp, release: sync.OnceFunc(func() { l.limiter.release(source) })}, nil
		}
		_ = tcp.SetLinger(0) // a reset leaves no TIME_WAIT state in this kernel
		_ = tcp.Close()
	}
}

// limitedConn counts against the bounds until it is closed. It embeds *net.TCPConn so that the HTTP server can still
// use sendfile and set TCP options.
type limitedConn struct {
	*net.TCPConn
	release func()
}

// Close closes the connection and releases its place, once even if it is called again.
func (c *limitedConn) Close() error {
	err := c.TCPConn.Close()
	c.release()
	return err
}

// sourcePrefix returns the client that a connection counts for: an IPv4 address, or the /64 network of an IPv6
// address, which is what one client is usually assigned.
func sourcePrefix(conn *net.TCPConn) netip.Prefix { return clientPrefix(conn.RemoteAddr().String()) }

// clientPrefix is sourcePrefix for an address with a port, such as 192.0.2.1:443. The zero prefix stands for any other
// text.
func clientPrefix(address string) netip.Prefix {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return netip.Prefix{}
	}
	addr := at.Addr().Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() && !addr.IsLoopback() {
		bits = 64
	}
	source, _ := addr.Prefix(bits)
	return source
}

// acquire counts a connection of source and reports true, or counts the refusal and reports false.
func (lim *Limiter) acquire(source netip.Prefix) bool {
	lim.mu.Lock()
	defer lim.mu.Unlock()
	switch {
	case lim.open >= lim.maxTotal:
		lim.refused[boundTotal]++
		return false
	case lim.openBySource[source] >= lim.maxPerAddress && !lim.isExempt(source.Addr()):
		lim.refused[boundAddress]++
		return false
	}
	lim.open++
	lim.openBySource[source]++
	return true
}

// isExempt reports whether maxPerAddress does not apply to addr: to a trusted proxy, and to loopback, where an
// operator's own proxy often runs and which no remote client can have.
func (lim *Limiter) isExempt(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	for _, p := range lim.trustedProxies {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// IsProxy reports whether an address with a port is one to which the bound of an address does not apply.
func (lim *Limiter) IsProxy(address string) bool { return lim.isExempt(clientPrefix(address).Addr()) }

// release ends the count of a connection of source.
func (lim *Limiter) release(source netip.Prefix) {
	lim.mu.Lock()
	defer lim.mu.Unlock()
	lim.open--
	if lim.openBySource[source]--; lim.openBySource[source] == 0 {
		delete(lim.openBySource, source)
	}
}

// ReadCounts returns how many connections are open, and how many were refused by each bound.
func (lim *Limiter) ReadCounts() (open int64, refused map[string]int64) {
	lim.mu.Lock()
	defer lim.mu.Unlock()
	return int64(lim.open), map[string]int64{boundTotal: lim.refused[boundTotal], boundAddress: lim.refused[boundAddress]}
}

// minRequests is the least bound of the requests over HTTP/2 and gRPC that may be open in a process. An open request
// takes up to 80 KiB with a response that its client does not take.
const minRequests = 4096

// NewRequestLimiter returns a limiter of the requests over HTTP/2 and gRPC, of which one connection carries many: a
// quarter of the connections that there may be, and at least minRequests. One address may have 1/AddressShares of them.
func NewRequestLimiter(connections int, trusted []netip.Prefix) *Limiter {
	total := max(connections/4, minRequests)
	return NewLimiter(total, total/AddressShares, trusted)
}

// LimitHTTP2Requests returns next with the bounds applied to requests over HTTP/2. A request beyond them is refused
// with 503 before any of it is read. Those over HTTP/1.1 have a connection each, which LimitListener counts.
func (lim *Limiter) LimitHTTP2Requests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor >= 2 {
			release, ok := lim.AcquireRequest(r.RemoteAddr)
			if !ok {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			defer release()
		}
		next.ServeHTTP(w, r)
	})
}

// AcquireRequest counts a request from an address with a port and returns what ends its count, or reports false.
func (lim *Limiter) AcquireRequest(address string) (release func(), ok bool) {
	source := clientPrefix(address)
	if !lim.acquire(source) {
		return nil, false
	}
	return func() { lim.release(source) }, true
}

// Defaults of the bounds. An idle connection takes about 20 KiB.
const (
	maxDefaultConnections = 16_384 // even if there are more descriptors
	spareDescriptors      = 256    // kept, at least, for the database, files and outgoing calls
	AddressShares         = 8      // one address may have 1/AddressShares of all connections, unless the operator decides
)

// DefaultMaxConnections returns the default of --max-connections for the descriptors that this process may have.
func DefaultMaxConnections() int { return maxConnectionsFor(countDescriptors()) }

// maxConnectionsFor returns the default for a number of file descriptors, 0 = unknown: all but a quarter, which is at
// least spareDescriptors, and never less than a quarter.
func maxConnectionsFor(descriptors uint64) int {
	if descriptors == 0 || descriptors >= 2*maxDefaultConnections {
		return maxDefaultConnections
	}
	n := int(descriptors) //nolint:gosec // it is small
	return max(n-max(n/4, spareDescriptors), n/4, 1)
}
