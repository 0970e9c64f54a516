// Package surface is the front door, the same for every dialect. A request passes through it in this order: a request
// id and a log line (record.go), cross-origin headers (cors.go), who it is and which app it is for (authenticate.go), its
// limits (body.go), the dialect's handler, and what that handler returned as an error (errors.go).
//
// A dialect is a list of [Route], and a handler decodes, asks [Request.Authorize] whether the caller may, calls the app's
// task service and encodes. What all dialects need stands here once: the loop that writes server-sent events
// (stream.go), the conversation over a WebSocket (socket.go), the envelope of JSON-RPC (jsonrpc.go), what is told of an
// agent that is writing (delta.go), whose cards may be seen and where they say they live (cards.go), the
// certificate that connections are shown (tls.go). Calls of other protocols pass the same way (nonhttp.go).
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

	"stoa/agentsvc/app"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/config"
	"stoa/authz"
	"stoa/ratelimit"
	"stoa/tenancy"
)

// Options say whom the server trusts and where it stands. Verifier, AdminSecret, Apps, Router and Live are required.
type Options struct {
	Verifier    *authz.Verifier
	AdminSecret string           // one secret, or two with a comma between them
	Auth        config.Auth      // whom the default app answers
	Keys        *authz.APIKeys   // nil = there are no API keys
	Apps        *tenancy.Service // remembers what calls with an Idempotency-Key were told
	Router      *tenancy.Router
	Runtimes    *tenancy.RuntimeCache[*app.App]

	PublicURL      string                                   // how clients reach the server, for cards; "" = http://localhost:8080
	Hosts          []string                                 // names and addresses that it listens at or is reached under besides, see [newPageGuard]
	GRPC           GRPC                                     // how cards say that agents are called over gRPC
	SignCard       func(card []byte) (CardSignature, error) // signs a card in JSON, nil = nobody does
	TrustedProxies []netip.Prefix                           // whose forwarding headers are believed
	CORS           config.CORS
	Observe        func(Observation)      // called after each request
	OnLargeBodies  func(bytes int64)      // called with about how much memory large bodies take, whenever that changes, nil = nobody wants to know
	ResponseMemory *capacity.Pool         // where what is read and prepared for callers takes its memory from, nil = without bound
	OnRefused      func(app, rule string) // called for each call that a limit or a budget refuses, nil = nobody wants to know
	Tracer         trace.Tracer           // begins the traces of requests, nil = nobody records them
	Log            *slog.Logger

	BodyRate     int64         // bytes a second of large bodies that are taken in of each app; 16 MiB
	Deadline     time.Duration // of a request that does not wait for a task; 30 seconds
	KeepAlive    time.Duration // between comments on a silent stream; 15 seconds
	PieceTimeout time.Duration // how long a client may take to accept or send a piece of data; 30 seconds
	BodyTimeout  time.Duration // how long it may take to send a whole body or message; 2 minutes
}

func (o *Options) setDefaults() {
	o.PublicURL = cmp.Or(o.PublicURL, "http://localhost:8080")
	o.BodyRate = cmp.Or(o.BodyRate, defaultBodyRate)
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

// Server is the front door. It is an [http.Handler].
type Server struct {
	options         Options
	baseURL         *url.URL
	adminSecret     *authz.AdminSecret // at the admin API
	misplacedSecret *authz.AdminSecret // where it does not belong
	routes          []Route
	mux             *chi.Mux
	handler         http.Handler
	bodyBudget      *bodyBudget
	cors            *cors
	pageGuard       *pageGuard
	sockets         socketGroup

	openStreams   atomic.Int64 // open
	draining      atomic.Bool
	streamsCtx    context.Context // ends with [Server.EndStreams]
	cancelStreams context.CancelFunc
}

// New returns a server of routes. It returns an error for options that are not safe or not possible.
func New(o Options, routes ...Route) (*Server, error) {
	o.setDefaults()
	if err := checkDistinct(routes); err != nil {
		return nil, err
	}
	if o.Verifier == nil || o.Apps == nil || o.Router == nil || o.Runtimes == nil {
		return nil, errors.New("surface: a verifier, the apps, a router and the live apps are needed")
	}
	s := &Server{options: o, routes: routes, mux: chi.NewMux(), bodyBudget: newBodyBudget(o.OnLargeBodies, o.BodyRate), cors: newCORS(o.CORS, routes)}
	var err error
	if s.baseURL, err = parseBaseURL(o.PublicURL); err != nil {
		return nil, err
	}
	s.pageGuard = newPageGuard(o.CORS, s.baseURL, o.Hosts)
	if s.adminSecret, err = authz.NewAdminSecret(o.AdminSecret, ratelimit.NewThrottle(ratelimit.ThrottleOptions{})); err != nil {
		return nil, err
	}
	// A throttle of its own, so that wrong credentials of tenants do not shut the operator out.
	if s.misplacedSecret, err = authz.NewAdminSecret(o.AdminSecret, ratelimit.NewThrottle(ratelimit.ThrottleOptions{})); err != nil {
		return nil, err
	}
	s.streamsCtx, s.cancelStreams = context.WithCancel(context.Background())
	s.mux.NotFound(s.newUnknownHandler(s.handleNoPath))
	s.mux.MethodNotAllowed(s.newUnknownHandler(s.handleNoMethod))
	for i := range s.routes {
		s.mountRoute(&s.routes[i])
	}
	s.handler = s.instrumentHandler(s.cors.wrapHandler(s.mux))
	return s, nil
}

var pathParameter = regexp.MustCompile(`\{[^{}]*\}`)

// checkDistinct refuses routes of which one would hide another.
func checkDistinct(routes []Route) error {
	registered := map[string]string{}
	for _, r := range routes {
		key := r.Method + " " + pathParameter.ReplaceAllString(r.Pattern, "{}")
		if other, twice := registered[key]; twice {
			return fmt.Errorf("%s %s is answered by two: the path %s is taken, choose another", r.Method, r.Pattern, other)
		}
		registered[key] = r.Pattern
	}
	return nil
}

func parseBaseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("the public URL %q must be one such as https://agents.example.com", text)
	}
	return u, nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Routes lists what the server answers, once each: those of tenants answer below /apps/{app} as well.
func (s *Server) Routes() []Route { return s.routes }

// OpenStreams counts the streams that are open.
func (s *Server) OpenStreams() int64 { return s.openStreams.Load() }

// Drain has every answer from now on ask its client to open another connection for the next request (RFC 9112, 9.6):
// the first step of a shutdown. Connections stay open until their clients close them, so that no request is lost.
func (s *Server) Drain() { s.draining.Store(true) }

// EndStreams ends every stream with a hint to come back, every blocking call with the task as it stands, and every
// WebSocket, which it waits for. It is the last step of a shutdown before the listener closes.
func (s *Server) EndStreams() {
	s.cancelStreams()
	s.sockets.closeAndWait()
}

// maxHeader bounds the headers of a request, in bytes.
const maxHeader = 32 << 10

// maxStreams bounds the requests that are under way on one connection of HTTP/2.
const maxStreams = 250

// NewHTTPServer returns a server that carries s over HTTP/1.1 and HTTP/2, the latter also without TLS for proxies that know so
// beforehand: with bounds on headers, on idle and dead connections and on what a connection may ask for at a time, and
// none on how long an answer may take.
func (s *Server) NewHTTPServer() *http.Server {
	both := &http.Protocols{}
	both.SetHTTP1(true)
	both.SetHTTP2(true)
	both.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: s, MaxHeaderBytes: maxHeader, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		Protocols: both, HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, SendPingTimeout: s.options.PieceTimeout, PingTimeout: s.options.KeepAlive, WriteByteTimeout: s.options.PieceTimeout,
		},
		ConnContext: withConn,
		ErrorLog:    slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug),
	}
}
