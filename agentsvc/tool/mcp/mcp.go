// Package mcp provides the tools of MCP servers (Model Context Protocol): programs on this host, over their standard
// input and output, and servers at an address, over streamable HTTP or the older SSE.
//
// A [Server] is a [tool.Source]. It connects when its tools are first listed, shares one connection among all agents of
// an app, and reconnects with backoff when it is lost (connector, connection). If callers have credentials of their own
// for the server, each caller also has a connector of its own for its calls: a session that one caller opened is never
// used by another.
//
// The server is not trusted. Every message is bounded; the definition of a tool is pinned when it is first seen, and a
// tool whose definition changed is blocked until an operator accepts it (applyPins). The server receives the arguments,
// the step, the configured headers, and the credential that the caller supplied for it; never the credential that
// authenticates the caller to Stoa.
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
	"stoa/agentsvc/store/toolpin"
	"stoa/agentsvc/tool"
)

// Transport is how a server is reached. The zero value is detected: Stdio for a server with a command; for one with an
// address StreamableHTTP or, if the server does not speak that, SSE.
type Transport string

// The transports. The values are those of the configuration.
const (
	Stdio          Transport = "stdio"
	SSE            Transport = "sse"
	StreamableHTTP Transport = "streamable-http"
)

// Options describe a server. Name and either URL and HTTP, or Command, are required.
type Options struct {
	Name      string
	Transport Transport

	URL string
	// Headers are sent to the server's own host only.
	Headers map[string]string
	// HTTP is the client for requests; it must enforce the egress rules, see package egress.
	HTTP *http.Client
	// Credential is sent on each caller's own connection; nil: all callers share one connection.
	Credential *tool.CredentialProvider

	// Command is a path, or a name that is looked up in the PATH of Env.
	Command string
	Args    []string
	// Env is the whole environment of the program, in addition to a default PATH. Nothing of this process's is passed
	// on.
	Env map[string]string
	// Sandbox confines the program; nil: it runs unconfined, which only the operator's own configuration may say.
	Sandbox *sandbox.Host
	// AllowNetwork gives the confined program the host's network.
	AllowNetwork bool

	// Filter lists the tools to offer; empty: all.
	Filter []string
	// Description precedes the description of each tool.
	Description string
	// Optional lets a turn go on without tools if the server is not available.
	Optional bool
	// Pins stores the accepted definitions of tools; nil: they are not pinned.
	Pins *toolpin.Store
	// ConnectTimeout bounds one attempt to connect, and one listing, 0 = 30 s.
	ConnectTimeout time.Duration
	// IdleTimeout is how long an unused caller's connection stays open, 0 = 5 min.
	IdleTimeout time.Duration
	// MaxMessage bounds one message, in bytes, 0 = 8 MiB.
	MaxMessage int
	Logger     *slog.Logger
}

// Bounds of what a server can make this process store.
const (
	// defaultMaxMessage bounds one message, in bytes, where Options.MaxMessage is 0.
	defaultMaxMessage = 8 << 20
	// maxUnsolicited is the number of messages of the maximal size that a program may print between two requests.
	maxUnsolicited = 4
	// maxTools, maxDescription and maxSchema (bytes) bound a server's list, which is stored and sent to models.
	maxTools = 512
	// maxListPages bounds the requests of one listing: pages may be empty.
	maxListPages   = 128
	maxDescription = 8 << 10
	maxSchema      = 64 << 10
	// maxListParts and maxListInstructions bound the schemas of a server's tools together: see [pattern.SchemaCost].
	maxListParts        = 20_000
	maxListInstructions = 20_000
	// maxOutput bounds a result as text, in bytes. The set's MaxOutput may cut it further.
	maxOutput = 1 << 20
	// maxCallerConnectors bounds the callers with a connection of their own.
	maxCallerConnectors = 256
)

// Timeouts.
const (
	defaultConnectTimeout = 30 * time.Second
	defaultIdleTimeout    = 5 * time.Minute
	// knownToolsTimeout is how long a turn waits for a server whose tools are known from before.
	knownToolsTimeout = 2 * time.Second
	// maxListAge is the age at which the list is requested again, in case the server sends no notification of changes.
	maxListAge = 5 * time.Minute
	// sessionCloseTimeout bounds how long a session may take to end in order, before its connections are closed.
	sessionCloseTimeout = 2 * time.Second
)

// Server is one MCP server. It is safe for concurrent use.
type Server struct {
	// options and filter are read-only after New.
	options Options
	filter  map[string]bool
	// ctx is the lifetime of all connections; Close ends it. wg counts their goroutines.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	// replyTimeout is the constant of this name; tests set another one.
	replyTimeout time.Duration
	// shared is the connector without a caller's credential.
	shared *connector

	// mu guards the fields below and the caller fields of connectors.
	mu sync.Mutex
	// detectedTransport is the transport that worked, "" until one did.
	detectedTransport Transport
	// lastList is the newest list of any connector, from which unchanged tools are reused; nil: none yet.
	lastList *toolList
	// callerConnectors are the connectors of callers with a credential, at most maxCallerConnectors.
	callerConnectors map[agentsvc.Owner]*connector
}

// New returns a server. It returns an error with [agentsvc.CodeInvalid] for options that do not fit together. It does not
// connect.
func New(o Options) (*Server, error) {
	if err := o.normalizeOptions(); err != nil {
		return nil, err
	}
	s := &Server{options: o, replyTimeout: replyTimeout, detectedTransport: o.Transport, callerConnectors: map[agentsvc.Owner]*connector{}}
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

// normalizeOptions checks the options and sets defaults.
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
	var errs []error
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		errs = append(errs, agentsvc.NewInvalidError("url", "must be an http or https address"))
	case u.User != nil:
		errs = append(errs, agentsvc.NewInvalidError("url", "must hold no user or password: set headers instead"))
	}
	if o.Credential != nil {
		errs = append(errs, checkHeader("credential.header", o.Credential.Header, ""))
	}
	return errors.Join(append(errs, checkHeaders(o.Headers))...)
}

// Name implements [tool.Source].
func (s *Server) Name() string { return "tools." + s.options.Name }

// ListTools implements [tool.Source]. It connects if necessary. If the server is not available, the tools that were
// listed last are returned, whose calls then fail; if none were ever listed, an optional server has no tools. The
// shared connection lists the tools; only if the server refuses it with HTTP 401 does the caller's own do it, and a
// [*tool.CredentialError] reports that the caller has supplied no credential.
func (s *Server) ListTools(ctx context.Context, session agentsvc.SessionKey) ([]tool.Tool, error) {
	tools, err := s.shared.listTools(ctx)
	if s.options.Credential != nil && errors.Is(err, errUnauthorized) {
		err = s.withCallerConnector(ctx, session, func(l *connector, _ *tool.CallerCredential) (err error) {
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

// Close ends the connections and thereby all calls, stops the program, and waits for all goroutines. The server cannot
// be used afterwards.
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
