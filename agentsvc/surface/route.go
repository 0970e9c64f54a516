package surface

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/crossorigin"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/requestbody"
	"stoa/authz"
	"stoa/tenancy"
	"stoa/tenancy/audit"
)

// Handler answers a request or returns an error, which respond.go then encodes. If it returns an error before it has
// written anything, the caller gets that error as the response; after it has begun to write, the error is only logged.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Kind is who may reach a route, and so how its requests are authenticated.
type Kind string

// The kinds of routes.
const (
	// Tenant routes belong to an app: they are served with a [Request], and below /apps/{app} as well.
	Tenant Kind = "tenant"
	// Admin routes are for the platform's operator. They are never served below /apps/{app}.
	Admin Kind = "admin"
	// Open routes need no credential and know no app, such as /health.
	Open Kind = "open"
)

// Route is one endpoint of a protocol. The zero value of a field is the strict choice: a small body, a deadline, no
// anonymous discovery.
type Route struct {
	// Method is the HTTP method. A GET route answers HEAD as well.
	Method string
	// Pattern is a path with parameters in braces, as chi reads it. It labels logs, metrics and spans.
	Pattern string
	// Aliases are further patterns at which the same route is served. They are labelled with Pattern.
	Aliases []string
	Kind    Kind
	// Scope is what the caller needs; it is checked before Serve is called. "" = Serve checks, or nothing is needed.
	Scope authz.Scope
	// Query are the query parameters that the route reads. Any other is refused, since a misspelled filter would select
	// everything, except on signed routes, whose senders may add some, and with AnyQuery.
	Query []string
	// AnyQuery ignores unknown query parameters, for protocols whose clients send some that this server does not know.
	AnyQuery bool
	// Discovery lets callers without a credential into every app: the visibility of each agent then decides what they
	// see. Every other tenant route acts or reads. Where the app needs no credential, those refuse pages of foreign
	// origins ([crossorigin.PageGuard]).
	Discovery bool
	// Signed lets requests into every app without verifying a credential: Serve must verify the signature of the
	// delivery. The first signed route also serves the paths that an app's configuration gave to its webhooks and that no
	// route has, with any method.
	Signed bool
	// LargeBody allows bodies of up to [requestbody.MaxMessage] bytes; else [requestbody.MaxBody] bytes are allowed.
	LargeBody bool
	// File says that the body is a file of up to [requestbody.MaxFile] bytes, which Serve reads by [ReadFile]. An
	// Idempotency-Key then also stands for the RequestHeaders, which describe the file.
	File bool
	// StreamBytes allows bodies of that many bytes, which Serve reads from the request as they arrive and does not keep in
	// memory. Such a body may take as long as maxStreamTime.
	StreamBytes int64
	// Idempotent says that the request changes something and honours an Idempotency-Key: under a key it takes effect
	// once.
	Idempotent bool
	// NoDeadline says that the response may wait for a task. Without it the context ends after [Options].Deadline.
	NoDeadline bool
	// RequestHeaders and ResponseHeaders are headers that only this protocol has. CORS allows pages to send and to read
	// them.
	RequestHeaders, ResponseHeaders []string
	// RPCSystem is the protocol whose calls the route carries, as OpenTelemetry names it, such as grpc; "" = HTTP. The
	// pattern is then /service/method.
	RPCSystem string
	// EncodeError encodes errors in the protocol's own form; nil = an [apierror.Record]. A body with a method MediaType
	// has that Content-Type, if the client accepts it.
	EncodeError apierror.Encoder
	// Serve answers a request that has been authenticated.
	Serve Handler
}

// mountRoute registers a route at all its patterns: its own, its aliases, and for a tenant route the same below
// /apps/{app}. The root of an app is served with and without its slash.
func (s *Server) mountRoute(route *Route) {
	for _, pattern := range append([]string{route.Pattern}, route.Aliases...) {
		h := s.withoutVerbs(route, pattern, s.serveRoute(route))
		patterns := []string{pattern}
		if route.Kind == Tenant {
			patterns = append(patterns, "/apps/{app}"+pattern)
			if pattern == "/" {
				patterns = append(patterns, "/apps/{app}")
			}
		}
		for _, p := range patterns {
			s.mux.Method(route.Method, p, h)
			if route.Method == http.MethodGet {
				s.mux.Method(http.MethodHead, p, h)
			}
		}
	}
}

// serveRoute returns the handler of a route. It sets the deadline, runs admitAndServe and writes the error that it
// returns.
func (s *Server) serveRoute(route *Route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rec := recordOf(r)
		rec.route, rec.rpcSystem, rec.errorEncoder = route.Pattern, route.RPCSystem, route.EncodeError
		// writeError gets r, not in: it must distinguish a client that disconnected from a deadline that has passed.
		in := r
		if !route.NoDeadline {
			ctx, cancel := context.WithTimeout(r.Context(), s.options.Deadline)
			defer cancel()
			in = r.WithContext(ctx)
		}
		if err := s.admitAndServe(route, rec, w, in); err != nil {
			// The only credential that open routes verify themselves is that of the metrics.
			if k, _ := s.readCredentials(r); route.Kind == Open && k.BearerToken != "" {
				s.credentials.reportFailedCredential(audit.FailedCredential{Credential: MetricsCredential, Reason: ReasonInvalid, Client: k.ClientAddress}, err)
			}
			s.writeError(w, r, rec, err)
		}
	}
}

// admitAndServe authenticates and admits the request as the kind of its route demands, bounds its body and calls the
// handler. It fills in rec as it learns what the request is about. All that it reserves is released when it returns.
func (s *Server) admitAndServe(route *Route, rec *requestRecord, w http.ResponseWriter, r *http.Request) error {
	if (route.Signed || !crossorigin.IsReadOnly(r)) && !s.cors.IsAllowedOrigin(r) {
		return apierror.ErrOrigin
	}
	switch route.Kind {
	case Tenant:
		// The response depends on the caller and on the app, though the path may name neither: no cache may share it.
		w.Header()["Cache-Control"] = privateCacheControl
		w.Header().Add("Vary", "Authorization")
		v, err := s.authenticateHTTP(r, route)
		if err != nil {
			return err
		}
		defer v.ReleaseApp()
		v.requestRecord, rec.request, rec.app, rec.body.App = rec, v, v.App.Name, v.App.ID
		v.memory, v.origin = &rec.writer.Memory, newOrigin(v.credentials.ClientAddress, rec.id)
		rec.writer.InitMemory(s.options.ResponseMemory, v.App.ID)
		r = s.tracer.startTrace(rec, r, v.App)
		if route.Scope != "" {
			if err := v.Authorize(r.Context(), route.Scope, ""); err != nil {
				return err
			}
		}
	case Admin:
		p, err := s.authenticateOperator(r)
		if err != nil {
			return err
		}
		rec.operator = operatorRequest{Principal: p, origin: newOrigin(s.proxies.clientAddress(r), rec.id)}
		if name := PathParam(r, "app"); tenancy.IsValidAppName(name) {
			rec.operator.app = name
		}
		rec.writer.InitMemory(s.options.ResponseMemory, "")
		r = s.tracer.startTrace(rec, r, nil)
		w.Header().Set("Cache-Control", "no-store")
	}
	// The URL is checked after authentication, so that a caller without a credential learns nothing from the
	// difference.
	if hasEmptyParam(r) {
		return apierror.ErrNoPath
	}
	if err := decode.CheckURL(r.URL); err != nil {
		return err
	}
	// An unknown path has no known query names; its own error is the better answer.
	if !route.AnyQuery && !route.Signed && route.Pattern != routeUnknown {
		if err := decode.CheckQuery(r, route.Query...); err != nil {
			return err
		}
	}
	maxBytes, bodyTimeout := int64(requestbody.MaxBody), s.options.BodyTimeout
	switch {
	case route.StreamBytes > 0:
		maxBytes, bodyTimeout = route.StreamBytes, maxStreamTime
	case route.LargeBody:
		maxBytes = requestbody.MaxMessage
	case route.File:
		maxBytes = requestbody.MaxFile
	}
	rec.body.Limit(rec.writer.ResponseWriter, r, maxBytes, s.options.PieceTimeout, bodyTimeout)
	defer rec.body.Release()
	if route.Idempotent {
		return serveIdempotent(s.options.Idempotency, w, r, route)
	}
	return route.Serve(w, r)
}

// maxStreamTime bounds the arrival of a body that is read as it arrives. Each of its pieces has the timeout of all bodies.
const maxStreamTime = 6 * time.Hour

// routeUnknown labels requests that match no route, so that arbitrary paths do not become metric labels.
const routeUnknown = "unknown"

// privateCacheControl is shared by all responses of tenant routes; it must not be changed.
var privateCacheControl = []string{"private, no-cache"}

// newUnknownHandler returns the handler for requests that match no route. Below /admin the caller is authenticated as
// the operator first, so that others cannot find out which admin routes exist. A path that a webhook of the app has is
// served as that. The error has the form of the nearest route's protocol.
func (s *Server) newUnknownHandler(answer Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		unknown := Route{Pattern: routeUnknown, EncodeError: s.nearestEncoder(r), Serve: answer}
		if path := strings.TrimSuffix(routePath(r), "/"); path == "/admin" || strings.HasPrefix(path, "/admin/") {
			unknown.Kind = Admin
		} else if route := s.findWebhookRoute(r); route != nil {
			unknown = *route
		}
		s.serveRoute(&unknown)(w, r)
	}
}

// findWebhookRoute returns the route of webhooks if one of the app has the path of r, see [Route].Signed. If that
// cannot be known, because the app cannot be loaded now, it returns the route as well, which answers with the reason:
// "not found" would be wrong. An app that does not exist is answered like a path that does not.
func (s *Server) findWebhookRoute(r *http.Request) *Route {
	i := slices.IndexFunc(s.routes, func(route Route) bool { return route.Signed })
	if i < 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.options.Deadline)
	defer cancel()
	route := &s.routes[i]
	v, err := s.authenticateHTTP(r.WithContext(ctx), route)
	if err != nil {
		if errors.Is(err, apierror.CodeNoEndpoint) {
			return nil
		}
		return route
	}
	defer v.ReleaseApp()
	if v.Runtime.Webhooks()[v.Path()] == nil {
		return nil
	}
	return route
}
