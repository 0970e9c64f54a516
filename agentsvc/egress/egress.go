// Package egress is the only way out of the house to an address that a tenant can choose: model servers, MCP servers,
// remote agents, webhooks, databases. Its [Client] checks every address at the moment of dialling, after the name was
// resolved, so that neither a name that changes its mind nor a redirect reaches the inside of the network.
package egress

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"time"
)

// Bounds of the connection pool.
const (
	maxIdle        = 256
	maxIdlePerHost = 64
	maxPerHost     = 512
	idleTimeout    = 90 * time.Second
	maxHeaderBytes = 64 << 10
)

// Options are what differs between clients. The zero value reaches public addresses only.
type Options struct {
	// PrivateNetwork also admits loopback, private and carrier NAT addresses, and this machine's own whatever range they lie in.
	// Link-local addresses and those of cloud metadata services stay refused.
	PrivateNetwork bool
	// MaxBytes caps the body of an answer, counted after decompression; 64 MiB if zero.
	MaxBytes int64
	// DialTimeout bounds resolving and connecting, TLSTimeout the handshake; 10 s each if zero.
	DialTimeout, TLSTimeout time.Duration
	// HeaderTimeout bounds the wait for an answer's header, from the call on; 60 s if zero. [Client.HTTPWithHeaderTimeout] raises it.
	HeaderTimeout time.Duration
	// TLS is the base of the TLS configuration, nil for the system's defaults.
	TLS *tls.Config
	// Resolver resolves names, nil for the system's.
	Resolver *net.Resolver
}

// Client dials out. It is safe for concurrent use and holds a pool of connections that Close empties.
type Client struct {
	addressGuard  addressGuard
	dialer        *net.Dialer
	transport     *http.Transport
	maxBytes      int64
	headerTimeout time.Duration
	http          *http.Client
}

// New returns a client. It reads no proxy and nothing else from the environment.
func New(opts Options) *Client {
	return newClient(opts, newAddressGuard(opts.PrivateNetwork))
}

func newClient(opts Options, g addressGuard) *Client {
	c := &Client{addressGuard: g, maxBytes: orDefault(opts.MaxBytes, 64<<20), headerTimeout: orDefault(opts.HeaderTimeout, time.Minute), dialer: &net.Dialer{
		Timeout:  orDefault(opts.DialTimeout, 10*time.Second),
		Resolver: opts.Resolver,
		Control:  g.checkDial,
	}}
	c.transport = &http.Transport{
		DialContext:            c.DialContext,
		TLSClientConfig:        opts.TLS.Clone(),
		TLSHandshakeTimeout:    orDefault(opts.TLSTimeout, 10*time.Second),
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxHeaderBytes,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		MaxConnsPerHost:        maxPerHost,
		IdleConnTimeout:        idleTimeout,
		ForceAttemptHTTP2:      true,
	}
	c.http = c.HTTPWithHeaderTimeout(c.headerTimeout)
	return c
}

// HTTP returns a client for http and https. It follows at most three redirects, each checked like a first request,
// and sends no credentials to a host it was redirected to. An address that is refused is a [*NotAllowedError], an
// answer that is too long a [*TooLargeError]. It sets no deadline on a whole call: that is the context's.
func (c *Client) HTTP() *http.Client { return c.http }

// HTTPWithHeaderTimeout returns a client like [Client.HTTP], on the same connections, for servers that may take long before they
// answer at all: it waits for the header of an answer as long as wait, if that is longer than usual.
func (c *Client) HTTPWithHeaderTimeout(wait time.Duration) *http.Client {
	return &http.Client{
		Transport:     &roundTripper{next: c.transport, maxBytes: c.maxBytes, headerTimeout: max(wait, c.headerTimeout)},
		CheckRedirect: checkRedirect,
	}
}

// DialContext connects to address, "host:port" on a TCP network, under the same check. It has the shape that SQL
// drivers and gRPC ask for.
func (c *Client) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if isNumericHost(host) {
		return nil, &NotAllowedError{Host: host}
	}
	conn, err := c.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, hideAddress(host, err)
	}
	return conn, nil
}

// CheckHost looks host up, and connects to nothing. It returns a [*NotAllowedError] if none of its addresses may be reached, or
// the resolver's error. Tomorrow the name may lead elsewhere: what holds is the check of each connection.
func (c *Client) CheckHost(ctx context.Context, host string) error {
	if isNumericHost(host) {
		return &NotAllowedError{Host: host}
	}
	addrs, err := orDefault(c.dialer.Resolver, net.DefaultResolver).LookupNetIP(ctx, "ip", host)
	if err == nil && !slices.ContainsFunc(addrs, c.addressGuard.allowsAddress) {
		err = &NotAllowedError{Host: host}
	}
	return err
}

// Close drops the idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}
