// Package mcp brings the tools of MCP servers: programs on this host that are spoken to over their input and output,
// and servers at an address, over streamable HTTP or the older SSE. A [Server] is a [tool.Source]: it connects when
// its tools are first asked for, keeps the one connection for all agents of an app, and connects anew when it is lost.
//
// What a server says is not trusted. Every message is bounded, a tool whose definition has changed is blocked until
// an operator accepts it, and the server is sent nothing but the arguments, the step and the headers it was
// configured with: never a caller's credentials.
package mcp

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"stoa/agentsvc"
	"stoa/agentsvc/sandbox"
	"stoa/agentsvc/store"
	"stoa/agentsvc/tool"
)

// Transport is how a server is spoken to. The zero value finds out: a server with a command over its input and
// output, one with an address over streamable HTTP or, where it does not speak that, SSE.
type Transport string

// The transports.
const (
	Stdio          Transport = "stdio"
	SSE            Transport = "sse"
	StreamableHTTP Transport = "streamable-http"
)

// Options describe a server. A name and either URL and HTTP or Command are required.
type Options struct {
	Name      string
	Transport Transport

	URL     string
	Headers map[string]string // sent to the server's own host alone
	HTTP    *http.Client      // the way out; see package egress

	Command string            // a path, or a name looked up in Env's PATH
	Args    []string          // its arguments
	Env     map[string]string // all of its environment but for a plain PATH
	Sandbox *sandbox.Host     // holds the program; nil = it runs as it is
	Network bool              // what is held has the host's network

	Filter      []string      // which tools there are; empty = all
	Description string        // put before what each tool says about itself
	Optional    bool          // without the server there are no tools, rather than no turn
	Pins        *store.Store  // where first definitions are kept; nil = nowhere
	Connect     time.Duration // that an attempt to connect may take, 30 s if zero
	MaxMessage  int           // bytes of one message, 8 MiB if zero
	Logger      *slog.Logger
}

// Bounds of what a server may make us hold.
const (
	maxMessage     = 8 << 20 // bytes of a message, unless the options say otherwise
	maxUnasked     = 4       // messages of that size that a program may print between two calls
	maxTools       = 512
	maxDescription = 8 << 10
	maxSchema      = 64 << 10
	maxOutput      = 1 << 20 // bytes of a result as text
)

// Times.
const (
	connectTimeout = 30 * time.Second
	patience       = 2 * time.Second // that a turn waits for a server whose tools are known
	listAge        = 5 * time.Minute // after which the list is asked for again, even if no change was told
)

// Server is one server. It is safe for concurrent use.
type Server struct {
	o      Options
	filter map[string]bool
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	conn    *connection   // nil = none
	dialing chan struct{} // closed when the attempt ends; nil = none is made
	err     error         // of the last attempt
	retry   time.Time     // when the next attempt may be made
	pause   *backoff.ExponentialBackOff
	fitting Transport // the transport that worked, "" = not known yet

	listing sync.Mutex // held while a list is taken in
	known   *list      // guarded by mu, nil = never listed
}

// New returns a server. It connects to nobody. It returns an [agentsvc.InvalidError] for options that do not fit
// together.
func New(o Options) (*Server, error) {
	if err := o.settle(); err != nil {
		return nil, err
	}
	s := &Server{o: o, pause: backoff.NewExponentialBackOff(), fitting: o.Transport}
	s.pause.InitialInterval, s.pause.MaxInterval = time.Second, time.Minute
	s.pause.Reset()
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if len(o.Filter) > 0 {
		s.filter = make(map[string]bool, len(o.Filter))
		for _, name := range o.Filter {
			s.filter[name] = true
		}
	}
	return s, nil
}

// settle checks the options and fills in what follows from others.
func (o *Options) settle() error {
	o.Connect = cmp.Or(o.Connect, connectTimeout)
	o.MaxMessage = cmp.Or(o.MaxMessage, maxMessage)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Transport == "" && o.Command != "" {
		o.Transport = Stdio
	}
	if o.Transport == Stdio {
		if o.Command == "" {
			return agentsvc.Invalid("command", "is needed for transport stdio")
		}
		if o.URL != "" {
			return agentsvc.Invalid("url", "does not go with a command")
		}
		return nil
	}
	if o.Command != "" {
		return agentsvc.Invalid("command", "does not go with transport %s", o.Transport)
	}
	u, err := url.Parse(o.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return agentsvc.Invalid("url", "must be an http or https address")
	}
	if u.User != nil {
		return agentsvc.Invalid("url", "must hold no user or password: set headers instead")
	}
	return checkHeaders(o.Headers)
}

// Name implements [tool.Source].
func (s *Server) Name() string { return "tools." + s.o.Name }

// Tools implements [tool.Source]. It connects if there is no connection. If the server is away and its tools are known
// from before, those are returned, and their calls say so; if they never were, an optional server has none.
func (s *Server) Tools(ctx context.Context) ([]tool.Tool, error) {
	s.mu.Lock()
	known := s.known
	s.mu.Unlock()
	within := ctx
	if known != nil {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	c, err := s.connection(within)
	if err == nil {
		known, err = s.refresh(within, c)
	}
	switch {
	case err == nil || known != nil:
		return known.tools, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case s.o.Optional:
		return nil, nil
	}
	return nil, &tool.UnavailableError{Source: s.Name(), Reason: reason(err)}
}

// Close ends the connection and with it all calls, and stops the program. The server cannot be used afterwards.
func (s *Server) Close() error {
	s.cancel()
	s.work.Wait()
	return nil
}
