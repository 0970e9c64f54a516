// Package egress makes the outgoing connections to addresses that a tenant can choose: model servers, MCP servers,
// remote agents, webhooks, databases. It prevents server-side request forgery: a tenant must not reach the operator's
// network, this machine or a cloud's metadata service through Stoa.
//
// [Client] is the only type that other packages dial with. It offers an [http.Client] ([Client.HTTP]) and a dial
// function for SQL drivers and gRPC ([Client.DialContext]). A call goes through these checks:
//
//   - checkURL: the scheme is http or https, and the host is not a number in disguise (isNumericHost).
//   - addressGuard.checkDial: every address is checked at the moment of dialling, after the name was resolved. A
//     name that resolves differently the second time (DNS rebinding) is therefore checked with the address that is
//     really used, as is the target of a redirect.
//   - checkRedirect: at most three redirects, and credentials do not follow to another host.
//   - roundTripper and cappedBody: bounds of time and size.
//
// Errors that callers may see go through [PublicMessage]: the address that a name resolved to stays secret. The
// process has two clients, with and without [Options.PrivateNetwork]; the app's grant private_network selects one.
//
// The package also has the signatures of outgoing webhooks (sign.go).
package egress

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"time"
)

// Bounds of the connection pool and of response headers. The pool is shared by all tenants of the process; maxPerHost
// bounds what one busy host can take of it.
const (
	maxIdle        = 256 // connections, over all hosts
	maxIdlePerHost = 64
	maxPerHost     = 512 // connections to one host; further calls wait for one
	idleTimeout    = 90 * time.Second
	maxHeaderBytes = 64 << 10 // of a response
)

// Options configure a [Client]. The zero value reaches public addresses only.
type Options struct {
	// PrivateNetwork also allows loopback, private and carrier-grade NAT addresses, and this machine's own addresses
	// in any range. Link-local addresses and those of cloud metadata services stay refused.
	PrivateNetwork bool
	// MaxBytes bounds the body of a response, counted after decompression; 64 MiB if zero.
	MaxBytes int64
	// DialTimeout bounds resolving and connecting, TLSTimeout the handshake; 10 s each if zero.
	DialTimeout, TLSTimeout time.Duration
	// HeaderTimeout bounds the wait for a response's header, from the beginning of the call; 60 s if zero.
	// [Client.HTTPWithHeaderTimeout] raises it for slow servers.
	HeaderTimeout time.Duration
	// TLS is the base of the TLS configuration, nil for the system's defaults. It is cloned.
	TLS *tls.Config
	// Resolver resolves names, nil for the system's resolver.
	Resolver *net.Resolver
}

// Client makes outgoing connections. It is safe for concurrent use; its fields are set by newClient and then
// read-only. It has a pool of connections, whose idle ones Close drops.
type Client struct {
	addressGuard  addressGuard    // decides about resolved addresses
	dialer        *net.Dialer     // its Control function is addressGuard.checkDial
	transport     *http.Transport // shared by all clients that this Client returns
	tls           *tls.Config     // of the options; that of transport is changed by its first use
	maxBytes      int64           // of a response's body
	headerTimeout time.Duration
	http          *http.Client // what HTTP returns
}

// New returns a client. It reads no proxy and no other setting from the environment: a proxy would make the address
// check meaningless.
func New(opts Options) *Client {
	return newClient(opts, newAddressGuard(opts.PrivateNetwork))
}

// newClient is New with the guard as an argument; tests replace it.
func newClient(opts Options, g addressGuard) *Client {
	c := &Client{addressGuard: g, tls: opts.TLS.Clone(), maxBytes: orDefault(opts.MaxBytes, 64<<20), headerTimeout: orDefault(opts.HeaderTimeout, time.Minute), dialer: &net.Dialer{
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

// HTTP returns a client for http and https. It follows at most three redirects, checks each like a first request, and
// sends no credentials to a host it was redirected to. A refused address is a [*NotAllowedError], a body that is too
// long a [*TooLargeError] while it is read. It sets no deadline on a whole call: the context does.
func (c *Client) HTTP() *http.Client { return c.http }

// HTTPWithHeaderTimeout returns a client like [Client.HTTP] on the same connections, for servers that take long
// before they answer. It waits for a response's header as long as wait or the client's own HeaderTimeout, whichever
// is longer.
func (c *Client) HTTPWithHeaderTimeout(wait time.Duration) *http.Client {
	return &http.Client{
		Transport:     &roundTripper{next: c.transport, maxBytes: c.maxBytes, headerTimeout: max(wait, c.headerTimeout)},
		CheckRedirect: checkRedirect,
	}
}

// DialContext connects to address, "host:port" on a TCP network, with the same address check as [Client.HTTP]. It has
// the signature that SQL drivers and gRPC expect. A refused address is a [*NotAllowedError].
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

// TLS returns the TLS configuration for connections that a caller of [Client.DialContext] encrypts itself.
func (c *Client) TLS() *tls.Config {
	if c.tls == nil {
		return &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return c.tls.Clone()
}

// CheckHost resolves host and connects to nothing. It returns a [*NotAllowedError] if none of its addresses is
// allowed, or the resolver's error. It serves to report a wrong configuration early; it does not replace the check of
// each connection, because the name may resolve differently later.
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

// Close drops the idle connections. Connections in use stay open until their calls end.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// orDefault returns v, or def if v is the zero value.
func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}
