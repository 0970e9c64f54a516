package surface

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"stoa/authz"
)

// Handler answers a request or says why it cannot. After an error it must have written nothing.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Kind says whose a route is.
type Kind string

// The kinds of routes.
const (
	Tenant Kind = "tenant" // of an app: it needs a [Request] and answers below /apps/{app} as well
	Admin  Kind = "admin"  // of the platform's operator
	Open   Kind = "open"   // of everybody
)

// Route is one thing that a dialect answers.
type Route struct {
	Method  string
	Pattern string
	Aliases []string // other patterns at which it answers, as the same route
	Kind    Kind
	Scope   authz.Scope // what a caller needs, asked for before Serve; "" = Serve asks, or nothing is needed
	// Query are the names that the query may have; any other is refused. On a tenant's route nil = Serve looks at it.
	Query []string
	// Discovery lets callers without a credential into every app: what they see, visibility decides. Every other route of a tenant
	// acts or reads, and refuses pages of foreign origins where the app asks for no credential ([pageGuard]).
	Discovery bool
	// Signed lets callers into every app without looking at their credentials: Serve has the visit prove itself ([Request.Prove]).
	Signed bool
	// LargeBody allows bodies of the size of messages.
	LargeBody bool
	// Idempotent says that a request changes something: with an Idempotency-Key it takes effect once.
	Idempotent bool
	// NoDeadline says that the answer may wait for a task: no deadline is set.
	NoDeadline bool
	// RequestHeaders and Reads are headers of requests and of answers that only this dialect has: pages of other origins get to use them.
	RequestHeaders, ResponseHeaders []string
	// RPCSystem is the protocol whose calls it carries, as OpenTelemetry names it; "" = HTTP. The pattern is then /service/method.
	RPCSystem string
	// EncodeError tells of errors in the dialect's own form; nil = as most endpoints do.
	EncodeError ErrorEncoder
	Serve       Handler
}

// mountRoute puts a route where it is reached. A GET answers HEAD as well, and the root of an app also without its slash.
func (s *Server) mountRoute(route *Route) {
	patterns := append([]string{route.Pattern}, route.Aliases...)
	if route.Kind == Tenant {
		for _, p := range slices.Clone(patterns) {
			patterns = append(patterns, "/apps/{app}"+p)
			if p == "/" {
				patterns = append(patterns, "/apps/{app}")
			}
		}
	}
	for _, p := range patterns {
		h := s.serveRoute(route)
		s.mux.Method(route.Method, p, h)
		if route.Method == http.MethodGet {
			s.mux.Method(http.MethodHead, p, h)
		}
	}
}

// serveRoute carries a request through the door that its route has and writes what goes wrong.
func (s *Server) serveRoute(route *Route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rec := recordOf(r)
		rec.route, rec.rpcSystem, rec.errorEncoder = route.Pattern, route.RPCSystem, route.EncodeError
		in := r
		if !route.NoDeadline {
			ctx, cancel := context.WithTimeout(r.Context(), s.options.Deadline)
			defer cancel()
			in = r.WithContext(ctx)
		}
		if err := s.admitAndServe(route, rec, w, in); err != nil {
			s.writeError(w, r, rec, err)
		}
	}
}

func (s *Server) admitAndServe(route *Route, rec *requestRecord, w http.ResponseWriter, r *http.Request) error {
	if !isReadOnly(r) && !s.cors.isAllowedOrigin(r) {
		return errOrigin
	}
	switch route.Kind {
	case Tenant:
		// What is answered depends on who asks, though the path may not tell.
		w.Header()["Cache-Control"] = privateCacheControl
		w.Header().Add("Vary", "Authorization")
		v, err := s.authenticateHTTP(r, route)
		if err != nil {
			return err
		}
		defer v.ReleaseApp()
		v.record, rec.request, rec.app = rec, v, v.App.Name
		rec.initResponseMemory(s, v.App.ID)
		r = s.startTrace(rec, r, v.App)
		if route.Scope != "" {
			if err := v.Authorize(r.Context(), route.Scope, "", ""); err != nil {
				return err
			}
		}
	case Admin:
		p, err := s.authenticateOperator(r)
		if err != nil {
			return err
		}
		rec.operator = p
		rec.initResponseMemory(s, "")
		r = s.startTrace(rec, r, nil)
		w.Header().Set("Cache-Control", "no-store")
	}
	if err := checkURL(r.URL); err != nil {
		return err
	}
	if route.Query != nil || route.Kind == Admin && route.Pattern != routeUnknown {
		if err := CheckQuery(r, route.Query...); err != nil {
			return err
		}
	}
	s.limitBody(rec, r, route)
	defer rec.bodyReservation.release()
	if route.Idempotent {
		return s.serveIdempotent(rec, w, r, route.Serve)
	}
	return route.Serve(w, r)
}

// routeUnknown is the route of a request that no route answers.
const routeUnknown = "unknown"

var privateCacheControl = []string{"private, no-cache"}

// PathParam returns a parameter of the path.
func PathParam(r *http.Request, name string) string { return chi.URLParam(r, name) }

// newUnknownHandler answers what no route does. Below /admin that is for the operator to hear alone, as everything there.
func (s *Server) newUnknownHandler(answer Handler) http.HandlerFunc {
	all, operator := s.serveRoute(&Route{Pattern: routeUnknown, Serve: answer}), s.serveRoute(&Route{Pattern: routeUnknown, Kind: Admin, Serve: answer})
	return func(w http.ResponseWriter, r *http.Request) {
		if path := strings.TrimSuffix(r.URL.Path, "/"); path == "/admin" || strings.HasPrefix(path, "/admin/") {
			operator(w, r)
			return
		}
		all(w, r)
	}
}

// findVerbs returns the verb that ends r's path, with its colon, and those that routes have in its place.
func (s *Server) findVerbs(r *http.Request) (verb string, known []string) {
	i := strings.LastIndexAny(r.URL.Path, ":/")
	if i < 0 || r.URL.Path[i] != ':' {
		return "", nil
	}
	path := strings.Split(r.URL.Path[:i], "/")
	for _, route := range s.Routes() {
		j := strings.LastIndexAny(route.Pattern, ":/")
		if route.Method != r.Method || route.Pattern[j] != ':' {
			continue
		}
		same := slices.EqualFunc(path, strings.Split(route.Pattern[:j], "/"), func(part, of string) bool {
			return part == of || strings.HasPrefix(of, "{")
		})
		if same {
			known = append(known, route.Pattern[j:])
		}
	}
	return r.URL.Path[i:], known
}

func (s *Server) handleNoPath(_ http.ResponseWriter, r *http.Request) error {
	return cmp.Or(s.checkVerb(r), errNoPath)
}

// checkVerb is the answer to a path that ends in a verb which is none, nil for any other.
func (s *Server) checkVerb(r *http.Request) error {
	verb, known := s.findVerbs(r)
	if len(known) == 0 {
		return nil
	}
	return &responseError{code: NotFound, status: http.StatusNotFound, text: "there is no " + verb + " here; there are " + strings.Join(known, ", ")}
}

// handleNoMethod answers a method that a path does not have, and names those it has (RFC 9110, 15.5.6). A path that ends in a
// verb which is none is not there.
func (s *Server) handleNoMethod(w http.ResponseWriter, r *http.Request) error {
	if err := s.checkVerb(r); err != nil {
		return err
	}
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if s.mux.Match(chi.NewRouteContext(), m, r.URL.Path) {
			w.Header().Add("Allow", m)
		}
	}
	return newMethodError(r.Method)
}

func newMethodError(method string) error {
	return &responseError{code: InvalidArgument, status: http.StatusMethodNotAllowed, text: "the method " + method + " is not allowed here"}
}
