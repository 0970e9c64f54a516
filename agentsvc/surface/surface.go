// Package surface is what every protocol endpoint of the server shares: it authenticates a request, admits it, bounds
// it and answers its errors. The protocols themselves are packages below it: ext, v1, a2a, openai, mcp, admin,
// billingapi, documents, tenantapi and webhook return lists of [Route], which [New] serves; a2agrpc passes its calls to
// [Server.ServeNonHTTP]; openapi describes them all.
//
// Package surface is made of smaller ones, which know no requests of apps: requestbody reads bodies, decode and encode
// have what is common to messages, apierror maps errors to codes, response writes responses, stream and sse write the
// events of a task, crossorigin decides what web pages may do, and idempotency makes requests take effect once. Packages
// jsonrpc, agentcard and mutation have what several protocols share.
//
// A request passes these steps in this order:
//
//  1. record.go: the request gets an id, and when it ends, its log line, its metrics and its span. A panic becomes a 500.
//  2. crossorigin: cross-origin headers; OPTIONS ends here.
//  3. route.go: the route is matched: by its pattern, or if there is none by the webhooks of the app ([Route].Signed). A
//     request that writes and comes from a page of another origin may be refused.
//  4. authenticate.go: [Server.Authenticate] verifies the credential and decides the app (tenant). No other place
//     decides it: the credential names the app, and a host or path that names another one makes the app not found. What it
//     returns, a [Request], is bound to that app and to one revision of its configuration.
//  5. route.go: the URL must be text, the query must have known names, the body is bounded in size and time.
//  6. once.go: with an Idempotency-Key the request takes effect once.
//  7. the route's [Handler]: it decodes ([DecodeMessage], [DecodeBody]), asks for permission ([Access.Authorize],
//     [Request.AdmitMessage]), calls the app's task service and encodes.
//  8. respond.go: an error that the handler returned becomes a status, a code and a body ([apierror.Classify]).
//
// A message to an agent takes one path in every protocol. [Request.AdmitMessage] checks the caller's scope, then checks
// the app's budgets, counts the call against its limits and reserves tokens from them (limit.go).
// [Request.SubmitMessage], [Request.SubmitAndWait] or [Request.SubmitAndSubscribe] pass it to the task service, which
// writes the turn before it returns (submit.go). The answer is then read from the task's log through a
// [stream.Subscription], whose events a [stream.Encoder] turns into the protocol's bodies: [Request.StreamEvents] writes
// them as server-sent events, [Request.ServeWebSocket] as frames (socket.go), [Request.WriteEvents] through any other
// writer (nonhttp.go, for gRPC). The reserved tokens are given back when the request ends, unless a turn was written
// that carries the reservation; then its worker settles it. Budgets are reserved and settled by each model call, in
// package runtime.
//
// Memory and time have bounds, since every sender is untrusted: of bodies in package requestbody, of responses in
// package response. A client that does not take its response or its events in time loses the connection; it can resume a
// stream with Last-Event-ID.
//
// To add a protocol, write a package below this one with a function that returns routes; their handlers decode, call
// and encode. It needs a [stream.Encoder] if it streams and an [apierror.Encoder] if its errors have a form of their
// own; if they have types or codes of their own, these are a column of the mappings in apierror/table.go. Headers that
// only it has are named in [Route].RequestHeaders and ResponseHeaders, so that CORS allows them. Add its routes to
// newProtocolRoutes in cmd/stoa/server/surfaces.go, to the lists of openapi's tests (openapi_test.go, routes_test.go,
// and accepts_test.go for bodies with a type), and to config.RoutePatterns (agentsvc/config/webhookpath.go), the paths
// that no webhook can have; its layer to cmd/stoa/plan_test.go, and descriptions to openapi/descriptions.json.
// Authentication, limits, errors and tracing follow from the fields of [Route]. TestIsolation
// (cmd/stoa/isolation_test.go) and TestMatrix (cmd/stoa/matrix_test.go) fail until they have a row for each new route;
// addProtocolRows (cmd/stoa/protocols_test.go) has the rows of protocols for both. Two things only some protocols have:
// a form of push notifications (newDispatchers in cmd/stoa/server/notify.go) and an interface in agent cards (package
// agentcard). One whose responses another library writes passes its calls to [Server.ServeNonHTTP], as a2agrpc does for
// gRPC. protocol_test.go of this package is a complete example.
package surface

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"go.opentelemetry.io/otel/trace"

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/config"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/surface/crossorigin"
	"stoa/agentsvc/surface/idempotency"
	"stoa/agentsvc/surface/requestbody"
	"stoa/authz"
	"stoa/tenancy/audit"
	"stoa/tenancy/router"
	"stoa/tenancy/runtimecache"
)

// Options configure a [Server]. Verifier, AdminSecret, Idempotency, Router and Runtimes are required; setDefaults fills
// in the rest.
type Options struct {
	Authentication
	// Idempotency stores the responses to requests that carry an Idempotency-Key.
	Idempotency *idempotency.Store
	// Router finds the app of a credential, a host or a path. Runtimes caches the built form of each app's current
	// revision.
	Router   *router.Router
	Runtimes *runtimecache.Cache[*runtime.Runtime]

	// PublicURL is where clients reach the server. Agent cards and other links begin with it. Default:
	// http://localhost:8080.
	PublicURL string
	// TrustedProxies are the addresses whose X-Forwarded-For header is believed.
	TrustedProxies []netip.Prefix
	// Observe is called once after each request, for metrics. It must not block.
	Observe func(Observation)
	// OnLargeBodies is called with the estimated memory of all large bodies, in bytes, whenever that changes; nil = not
	// called.
	OnLargeBodies func(bytes int64)
	// ResponseMemory bounds the memory of what is read and encoded for responses, by app; nil = no bound.
	ResponseMemory *capacity.Pool
	// OnRefused is called for each call that a limit or a budget refuses, with the rule's name or [BudgetRule]; nil =
	// not called.
	OnRefused func(app, rule string)
	// Tracer starts the spans of requests; nil = requests are not traced.
	Tracer trace.Tracer
	Log    *slog.Logger

	// BodyRate is how many bytes a second of large bodies are read of each app. Default: 16 MiB.
	BodyRate int64
	Browsers
	Timeouts
}

// Browsers are what a [Server] needs to know for requests of web pages.
type Browsers struct {
	// Hosts are further names and addresses that the server listens at or is reached under, see [crossorigin.NewPageGuard].
	Hosts []string
	// CORS is server.cors of the operator's configuration.
	CORS config.CORS
	// FindHomePage returns where a browser that asks for the root is led, "" = nowhere; nil = there are no pages.
	FindHomePage func(r *http.Request) string
}

// Authentication is how callers of a [Server] authenticate. Verifier and AdminSecret are required.
type Authentication struct {
	// Verifier verifies tokens: those of the built-in issuer, of the operator's OpenID provider and of the apps' own
	// issuers.
	Verifier *authz.Verifier
	// AdminSecret is one secret, or two with a comma between them while the secret is being changed.
	AdminSecret string
	// Auth decides which paths of the default app need a credential. Other apps always need one, except for discovery
	// and signed deliveries.
	Auth config.Auth
	// Keys verifies API keys; nil = the server has none, and a credential in their form is invalid.
	Keys *authz.APIKeys
	// AdminAttempts counts wrong admin secrets at the admin API; nil = this process alone counts.
	AdminAttempts authz.Attempts
	// OnFailedCredential is called for each credential that is refused; nil = not called.
	OnFailedCredential func(audit.FailedCredential)
}

// Timeouts bound the time of requests.
type Timeouts struct {
	// Deadline bounds a request that does not wait for a task. Default: 30 seconds.
	Deadline time.Duration
	// KeepAlive is the longest silence on a stream: then a comment is written, or a ping sent. Default: 15 seconds.
	KeepAlive time.Duration
	// PieceTimeout is how long a client may take to send or to take one piece of data. Default: 30 seconds.
	PieceTimeout time.Duration
	// BodyTimeout is how long a client may take to send a whole body or WebSocket message. Default: 2 minutes.
	BodyTimeout time.Duration
}

// setDefaults replaces zero values by the defaults that [Options] documents.
func (o *Options) setDefaults() {
	o.PublicURL = cmp.Or(o.PublicURL, "http://localhost:8080")
	o.BodyRate = cmp.Or(o.BodyRate, requestbody.DefaultRate)
	o.Deadline = cmp.Or(o.Deadline, 30*time.Second)
	o.KeepAlive = cmp.Or(o.KeepAlive, 15*time.Second)
	o.PieceTimeout = cmp.Or(o.PieceTimeout, 30*time.Second)
	o.BodyTimeout = cmp.Or(o.BodyTimeout, 2*time.Minute)
	if o.Observe == nil {
		o.Observe = func(Observation) {}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
}

// Server is an [http.Handler] that serves the routes of all protocols. The fields above openStreams do not change after
// [New]; bodyBudget and sockets guard their own state.
type Server struct {
	options     Options
	baseURL     *url.URL
	credentials credentialVerifier
	tracer      requestTracer
	proxies     trustedProxies
	routeTable
	// handler is the table's mux behind cors and instrumentHandler.
	handler http.Handler
	// bodyBudget bounds the request bodies in memory, of all requests together.
	bodyBudget *requestbody.Budget
	cors       *crossorigin.CORS
	pageGuard  *crossorigin.PageGuard
	// sockets waits for the WebSockets, which [http.Server] does not know any more once they are hijacked.
	sockets socketGroup

	// openStreams counts open event streams and WebSockets, for a gauge.
	openStreams atomic.Int64
	// draining is set by [Server.Drain] and never reset.
	draining atomic.Bool
	// streamsCtx ends with [Server.EndStreams]. Every subscription and every WebSocket watches it.
	streamsCtx    context.Context
	cancelStreams context.CancelFunc
}

// New returns a server of routes. It returns an error if a required option is missing, the public URL or the admin
// secret is invalid, or two routes have the same method and pattern.
func New(o Options, routes ...Route) (*Server, error) {
	o.setDefaults()
	if err := checkDistinct(routes); err != nil {
		return nil, err
	}
	if o.Verifier == nil || o.Idempotency == nil || o.Router == nil || o.Runtimes == nil {
		return nil, errors.New("surface: a verifier, the stored responses, a router and the runtimes are needed")
	}
	s := &Server{options: o, tracer: requestTracer{o.Tracer}, proxies: o.TrustedProxies, routeTable: routeTable{routes, newCustomVerbs(routes), chi.NewMux()}, bodyBudget: requestbody.NewBudget(o.OnLargeBodies, o.BodyRate)}
	var requestHeaders, responseHeaders []string
	for _, r := range routes {
		requestHeaders, responseHeaders = append(requestHeaders, r.RequestHeaders...), append(responseHeaders, r.ResponseHeaders...)
	}
	s.cors = crossorigin.NewCORS(o.CORS, requestHeaders, responseHeaders, func(r *http.Request) { recordOf(r).route = "options" })
	var err error
	if s.baseURL, err = parseBaseURL(o.PublicURL); err != nil {
		return nil, err
	}
	s.pageGuard = crossorigin.NewPageGuard(o.CORS, s.baseURL, o.Hosts)
	if s.credentials, err = newCredentialVerifier(o.Authentication); err != nil {
		return nil, err
	}
	s.streamsCtx, s.cancelStreams = context.WithCancel(context.Background())
	s.mux.NotFound(s.newUnknownHandler(s.handleNoPath))
	s.mux.MethodNotAllowed(s.leadBrowsers(s.newUnknownHandler(s.handleNoMethod)))
	for i := range s.routes {
		s.mountRoute(&s.routes[i])
	}
	s.handler = s.instrumentHandler(s.cors.WrapHandler(s.limitHeaders(s.mux)))
	return s, nil
}

// pathParameter matches a parameter of a pattern, such as {agent}. Its name does not distinguish patterns.
var pathParameter = regexp.MustCompile(`\{[^{}]*\}`)

// shapeOf returns a pattern without the names of its parameters.
func shapeOf(pattern string) string { return pathParameter.ReplaceAllString(pattern, "{}") }

// checkDistinct returns an error for two routes with the same method and pattern: chi would serve only one of them.
func checkDistinct(routes []Route) error {
	registered := map[string]string{}
	for _, r := range routes {
		key := r.Method + " " + shapeOf(r.Pattern)
		if other, twice := registered[key]; twice {
			return fmt.Errorf("%s %s has two handlers: choose another path than %s", r.Method, r.Pattern, other)
		}
		registered[key] = r.Pattern
	}
	return nil
}

// parseBaseURL returns the public URL, which must be http or https without a query and a fragment.
func parseBaseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("the public URL %q must be one such as https://agents.example.com", text)
	}
	return u, nil
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Routes returns the routes as [New] got them. A route of kind [Tenant] is listed once and also served below
// /apps/{app}.
func (s *Server) Routes() []Route { return s.routes }

// OpenStreams returns the number of open event streams and WebSockets.
func (s *Server) OpenStreams() int64 { return s.openStreams.Load() }

// Drain makes every response from now on carry Connection: close, so that clients open their next connection elsewhere
// (RFC 9112, 9.6). It is the first step of a shutdown. Connections stay open until their clients close them, so that no
// request is lost.
func (s *Server) Drain() { s.draining.Store(true) }

// EndStreams ends every event stream with a retry hint (an error where the protocol cannot resume a stream) and every
// blocking call with the task as it is, then closes every WebSocket and waits for them. It is the last step of a
// shutdown before the listener closes.
func (s *Server) EndStreams() {
	s.cancelStreams()
	s.sockets.closeAndWait()
}

// MaxHeader bounds the headers of a request, in bytes. Larger ones are answered with 431 in the form of the protocol.
const MaxHeader = 32 << 10

// maxReadHeader bounds the headers that are read at all; for larger ones net/http itself answers with 431, in plain
// text, and closes the connection.
const maxReadHeader = 2 * MaxHeader

// MaxStreams bounds the concurrent requests of one HTTP/2 connection.
const MaxStreams = 100

// NewHTTPServer returns an HTTP server for s that speaks HTTP/1.1 and HTTP/2, the latter also without TLS for proxies
// that start with it (h2c with prior knowledge). It bounds headers, idle and dead connections and the concurrent
// requests of a connection. It sets no WriteTimeout: streams last as long as their tasks, and each write has a deadline
// of its own.
func (s *Server) NewHTTPServer() *http.Server {
	both := &http.Protocols{}
	both.SetHTTP1(true)
	both.SetHTTP2(true)
	both.SetUnencryptedHTTP2(true)
	// ErrorLog is at debug level: its lines are about what clients do.
	return &http.Server{
		Handler: s, MaxHeaderBytes: maxReadHeader, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		Protocols: both, HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: MaxStreams, SendPingTimeout: s.options.PieceTimeout, PingTimeout: s.options.KeepAlive, WriteByteTimeout: s.options.PieceTimeout,
		},
		ErrorLog: slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug),
	}
}
