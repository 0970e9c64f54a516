// Package mcp brings the tools of MCP servers: programs on this host that are spoken to over their input and output,
// and servers at an address, over streamable HTTP or the older SSE. A [Server] is a [tool.Source]: it connects when
// its tools are first asked for, keeps the one connection for all agents of an app, and connects anew when it is lost.
// Where callers have credentials of their own for the server, each has a connection of its own as well, for its calls: two
// callers never share a session that one of them has opened.
//
// What a server says is not trusted. Every message is bounded, a tool whose definition has changed is blocked until
// an operator accepts it, and the server is sent nothing but the arguments, the step, the headers it was configured with
// and the credential that its caller has supplied for it: never the one by which that caller is known here.
package mcp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

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
	// Credential is what each caller's own connection sends; nil = there are none, and all share one.
	Credential *tool.CredentialProvider

	Command      string            // a path, or a name looked up in Env's PATH
	Args         []string          // its arguments
	Env          map[string]string // all of its environment but for a plain PATH
	Sandbox      *sandbox.Host     // holds the program; nil = it runs as it is
	AllowNetwork bool              // what is held has the host's network

	Filter         []string      // which tools there are; empty = all
	Description    string        // put before what each tool says about itself
	Optional       bool          // without the server there are no tools, rather than no turn
	Pins           *store.Store  // where first definitions are kept; nil = nowhere
	ConnectTimeout time.Duration // that an attempt to connect may take, 30 s if zero
	IdleTimeout    time.Duration // after which a caller's own connection is closed, 5 min if zero
	MaxMessage     int           // bytes of one message, 8 MiB if zero
	Logger         *slog.Logger
}

// Bounds of what a server may make us hold.
const (
	defaultMaxMessage   = 8 << 20 // bytes of a message, unless the options say otherwise
	maxUnsolicited      = 4       // messages of that size that a program may print between two calls
	maxTools            = 512
	maxDescription      = 8 << 10
	maxSchema           = 64 << 10
	maxOutput           = 1 << 20 // bytes of a result as text
	maxCallerConnectors = 256     // callers with a connection of their own
)

// Times.
const (
	defaultConnectTimeout = 30 * time.Second
	defaultIdleTimeout    = 5 * time.Minute
	knownToolsTimeout     = 2 * time.Second // that a turn waits for a server whose tools are known
	maxListAge            = 5 * time.Minute // after which the list is asked for again, even if no change was told
)

// Server is one server. It is safe for concurrent use.
type Server struct {
	options Options
	filter  map[string]bool
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	shared  *connector

	mu                sync.Mutex
	detectedTransport Transport                     // the transport that worked, "" = not known yet
	lastList          *toolList                     // of whichever line; nil = none yet
	callerConnectors  map[agentsvc.Owner]*connector // of callers with a credential
}

// New returns a server. It connects to nobody. It returns an [agentsvc.InvalidError] for options that do not fit
// together.
func New(o Options) (*Server, error) {
	if err := o.normalizeOptions(); err != nil {
		return nil, err
	}
	s := &Server{options: o, detectedTransport: o.Transport, callerConnectors: map[agentsvc.Owner]*connector{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.shared = s.newConnector(o.Headers)
	if len(o.Filter) > 0 {
		s.filter = make(map[string]bool, len(o.Filter))
		for _, name := range o.Filter {
			s.filter[name] = true
		}
	}
	return s, nil
}

// normalizeOptions checks the options and fills in what follows from others.
func (o *Options) normalizeOptions() error {
	o.ConnectTimeout, o.IdleTimeout = cmp.Or(o.ConnectTimeout, defaultConnectTimeout), cmp.Or(o.IdleTimeout, defaultIdleTimeout)
	o.MaxMessage = cmp.Or(o.MaxMessage, defaultMaxMessage)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Transport == "" && o.Command != "" {
		o.Transport = Stdio
	}
	if o.Transport == Stdio {
		if o.Command == "" {
			return agentsvc.NewInvalidError("command", "is needed for transport stdio")
		}
		if o.URL != "" {
			return agentsvc.NewInvalidError("url", "does not go with a command")
		}
		if o.Credential != nil {
			return agentsvc.NewInvalidError("credential", "is a header, which a program is not sent")
		}
		return nil
	}
	if o.Command != "" {
		return agentsvc.NewInvalidError("command", "does not go with transport %s", o.Transport)
	}
	u, err := url.Parse(o.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return agentsvc.NewInvalidError("url", "must be an http or https address")
	}
	if u.User != nil {
		return agentsvc.NewInvalidError("url", "must hold no user or password: set headers instead")
	}
	if o.Credential != nil {
		if err := checkHeader("credential.header", o.Credential.Header, ""); err != nil {
			return err
		}
	}
	return checkHeaders(o.Headers)
}

// Name implements [tool.Source].
func (s *Server) Name() string { return "tools." + s.options.Name }

// ListTools implements [tool.Source]. It connects if there is no connection. If the server is away and its tools are known
// from before, those are returned, and their calls say so; if they never were, an optional server has none. The shared
// connection is asked, which has no caller's credential; only a server that does not let it in is asked with the caller's
// own, and then a [*tool.CredentialError] says that there is none.
func (s *Server) ListTools(ctx context.Context) ([]tool.Tool, error) {
	tools, err := s.shared.listTools(ctx)
	if s.options.Credential != nil && errors.Is(err, errUnauthorized) {
		err = s.withCallerConnector(ctx, func(l *connector, _ *tool.CallerCredential) (err error) {
			tools, err = l.listTools(ctx)
			return err
		})
	}
	var credentialErr *tool.CredentialError
	switch {
	case err == nil:
		return tools, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.As(err, &credentialErr):
		return nil, credentialErr
	case s.options.Optional:
		return nil, nil
	}
	return nil, &tool.UnavailableError{Source: s.Name(), Reason: describeReason(err)}
}

// Close ends the connections and with them all calls, and stops the program. The server cannot be used afterwards.
func (s *Server) Close() error {
	s.cancel()
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.callerConnectors {
		if l.idleTimer != nil {
			l.idleTimer.Stop()
		}
	}
	return nil
}
