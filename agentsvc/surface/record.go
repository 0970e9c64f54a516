package surface

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/trace"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/requestbody"
	"stoa/agentsvc/surface/response"
	"stoa/authz"
	"stoa/tenancy/audit"
)

// Observation describes one answered request, for metrics. App and Agent are names that exist, or empty, so that
// callers cannot create metric labels.
type Observation struct {
	App    string
	Agent  string
	Method string
	// Route is the route's pattern, not the path.
	Route  string
	Status int
	// Code is the code of the error that the request was answered with, "" = none.
	Code     apierror.Code
	Duration time.Duration
	// Stream says that the request opened a stream of events or a WebSocket, which lasts as long as its reader wants.
	Stream bool
}

// requestRecord is what becomes known about a request, for its log line, metrics and span. The handler's goroutine
// writes it; other goroutines only read what was set before they started.
type requestRecord struct {
	// writer is the request's ResponseWriter.
	writer response.Writer
	// id is the request id: the client's X-Request-Id if it is acceptable, else a new one.
	id        string
	startedAt time.Time
	// span is nil until the request is admitted, and if it is not traced. endTrace gives a refused request a span.
	span trace.Span
	// route is the pattern of the matched route, or routeUnknown, or "options".
	route string
	// rpcSystem is [Route].RPCSystem.
	rpcSystem string
	// app and agent are names that exist, "" until they are known.
	app   string
	agent string
	// task is the one that the request started, continued, followed or cancelled, "" = none.
	task agentsvc.TaskID
	// request is set once a tenant route is authenticated; then neither credential nor app was the reason for an error.
	request *Request
	// body is released with the response or by [Request.ReleaseApp].
	body requestbody.Body
	// operator is set on admin routes.
	operator operatorRequest
	// errorEncoder is [Route].EncodeError.
	errorEncoder apierror.Encoder
	// code and err are those of the error that the request was answered with.
	code apierror.Code
	err  error
}

// operatorRequest is what is known about a request on an admin route.
type operatorRequest struct {
	authz.Principal
	// origin is where the request came from.
	origin audit.Origin
	// app is the name of the app that the request is about, for the log line; "" = none. The app need not exist.
	app string
}

// recordKey is the context key of the requestRecord. net/http and the router pass from a handler to the next one nothing
// but the request and its context.
type recordKey struct{}

// recordOf returns the record of a request, nil outside of instrumentHandler.
func recordOf(r *http.Request) *requestRecord {
	rec, _ := r.Context().Value(recordKey{}).(*requestRecord)
	return rec
}

// RequestOf returns the authenticated caller of a request on a tenant route, nil on other routes.
func RequestOf(r *http.Request) *Request { return recordOf(r).request }

// ActorOf returns the operator of a request on an admin route, as the actor of audit entries.
func ActorOf(r *http.Request) audit.Actor {
	rec := recordOf(r)
	return audit.Actor{Name: rec.operator.ActorName(), Origin: rec.operator.origin}
}

// SetLoggedApp makes the log line of an operator's request name the app that it is about, where its path does not.
func SetLoggedApp(r *http.Request, name string) { recordOf(r).operator.app = name }

// MemoryOf returns the memory reservation of the response, for reads that may be large.
func MemoryOf(r *http.Request) *capacity.MemoryReservation { return &recordOf(r).writer.Memory }

// RequestID returns the id of the request, which is in its log line, its error responses and its X-Request-Id header.
func RequestID(r *http.Request) string { return recordOf(r).id }

// statusClientGone is the status in logs and metrics of a request whose client disconnected before the response. It is
// nginx's number and is never sent.
const statusClientGone = 499

// instrumentHandler is the outermost handler: it creates the request's record and id, recovers panics, and writes the
// log line, the metrics and the span when the request has ended. It runs for requests of other protocols as well
// ([Server.ServeNonHTTP]).
func (s *Server) instrumentHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &requestRecord{id: sanitizeRequestID(r.Header.Get("X-Request-Id")), startedAt: time.Now(), body: s.bodyBudget.NewBody("")}
		w.Header()["X-Request-Id"] = []string{rec.id}
		rec.writer.Init(w, r, s.options.PieceTimeout)
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		r = r.WithContext(context.WithValue(r.Context(), recordKey{}, rec))
		defer rec.writer.Memory.ReleaseBytes()
		normalizePath(r.URL)
		defer func() {
			if p := recover(); p != nil {
				if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(p)
				}
				rec.code = apierror.Internal
				s.options.Log.ErrorContext(rec.withSpan(r.Context()), "a handler panicked", "request_id", rec.id, "route", rec.route, "panic", p, "stack", string(debug.Stack()))
				if rec.writer.Status != 0 {
					defer panic(http.ErrAbortHandler) // closes the connection: a truncated response must not look complete
				} else {
					rec.writeError(r, apierror.Classify(nil))
				}
			}
			s.logRequest(r, rec, time.Since(rec.startedAt))
		}()
		next.ServeHTTP(&rec.writer, r)
	})
}

// logRequest ends the span, reports the request to metrics and writes its log line. Health checks are logged at debug
// level. The reason for a refused credential is logged here and nowhere shown to the caller.
func (s *Server) logRequest(r *http.Request, rec *requestRecord, d time.Duration) {
	if rec.writer.Status == 0 {
		rec.writer.Status = http.StatusOK
		if r.Context().Err() != nil {
			rec.writer.Status = statusClientGone
		}
	}
	s.options.Observe(Observation{rec.app, rec.agent, r.Method, rec.route, rec.writer.Status, rec.code, d, rec.request != nil && rec.request.stream})
	s.tracer.endTrace(rec, r)
	level := slog.LevelInfo
	if rec.route == "/health" || rec.route == "/ready" {
		level = slog.LevelDebug
	}
	if !s.options.Log.Enabled(r.Context(), level) {
		return
	}
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs, slog.String("request_id", rec.id), slog.String("method", r.Method), slog.String("route", rec.route),
		slog.Int("status", rec.writer.Status), slog.Float64("duration", d.Seconds()), slog.String("client", newOrigin(s.proxies.clientAddress(r), rec.id).Client))
	for _, a := range [...][2]string{
		{"app", rec.logApp()}, {"agent", rec.agent}, {"subject", rec.subject()}, {"task", string(rec.task)}, {"limit", exhaustedRule(rec.err)}, {"reason", refusalReason(rec.err)},
	} {
		if a[1] != "" {
			attrs = append(attrs, slog.String(a[0], a[1]))
		}
	}
	s.options.Log.LogAttrs(rec.withSpan(r.Context()), level, "request", attrs...)
}

// logApp returns the name of the app that the log line names: the request's, the one that the operator's request is
// about, or the one that a refused credential belongs to.
func (rec *requestRecord) logApp() string {
	var refused *refusedApp
	if errors.As(rec.err, &refused) {
		return cmp.Or(rec.app, refused.app)
	}
	return cmp.Or(rec.app, rec.operator.app)
}

// subject returns the subject of the request's credential, "" if it has no valid one.
func (rec *requestRecord) subject() string {
	if rec.request != nil && !rec.request.Principal.Anonymous {
		return rec.request.Principal.Subject
	}
	return rec.operator.Subject
}

// refusalReason returns the reason, for the log only, why a credential or signature was refused, "" for other errors.
func refusalReason(err error) string {
	if errors.Is(err, agentsvc.CodeUnsigned) {
		return err.Error()
	}
	return authz.RefusalReason(err)
}

// maxRequestID bounds a client's request id, in bytes.
const maxRequestID = 64

// sanitizeRequestID returns the client's request id if it has 1 to maxRequestID characters, all of them letters, digits
// or one of "-_.:", else a new id. Other characters could forge log lines.
func sanitizeRequestID(given string) string {
	if given == "" || len(given) > maxRequestID {
		return agentsvc.NewID()
	}
	for _, c := range []byte(given) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.' || c == ':') {
			return agentsvc.NewID()
		}
	}
	return given
}
