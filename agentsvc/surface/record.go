package surface

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/trace"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/trigger"
	"stoa/authz"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// Observation is one answered request, for metrics. App and Agent are names that exist, or empty.
type Observation struct {
	App      string
	Agent    string
	Method   string
	Route    string // the pattern, not the path
	Status   int
	Code     Code // of the error that it was answered with, "" = none
	Duration time.Duration
}

// requestRecord is what becomes known of a request on its way, for its log line and its metrics.
type requestRecord struct {
	http.ResponseWriter
	id                  string
	startedAt           time.Time
	span                trace.Span // nil = there is none
	route               string
	rpcSystem           string // of remote procedure calls, "" = it is none
	app                 string
	agent               string
	request             *Request
	bodyBudget          *bodyBudget
	maxBodyBytes        int64                // bytes that the body may have
	receivedBytes       int                  // bytes of the body, of those that are JSON
	bodyReservation     bodyReservation      // the body's room, until the request is answered or its visit leaves
	responseReservation capacity.Reservation // what is read and prepared for the answer, until the request is answered
	responseDeadline    time.Time            // when the whole of an answer must have been taken, zero = it is small, or open-ended
	operator            authz.Principal
	errorEncoder        ErrorEncoder
	recorder            *responseRecorder // nil = nobody keeps the answer
	conn                syscall.RawConn   // that the answer has to itself, nil = it has none
	pieceTimeout        time.Duration     // how long the client may take to accept a piece of the answer, 0 = that is seen to elsewhere
	status              int               // 0 = nothing was written
	code                Code              // of the error
	err                 error
}

// WriteHeader remembers the status.
func (rec *requestRecord) WriteHeader(status int) {
	if rec.status == 0 {
		rec.status = status
	}
	rec.ResponseWriter.WriteHeader(status)
}

// Write remembers that there was an answer.
func (rec *requestRecord) Write(b []byte) (int, error) {
	if rec.status == 0 {
		rec.status = http.StatusOK
	}
	if rec.pieceTimeout > 0 {
		_ = http.NewResponseController(rec.ResponseWriter).SetWriteDeadline(rec.writeDeadline(rec.pieceTimeout))
	}
	return rec.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (rec *requestRecord) Unwrap() http.ResponseWriter { return rec.ResponseWriter }

// appID is the app whose room the body takes, "" = that of the platform.
func (rec *requestRecord) appID() db.ID {
	if rec.request == nil {
		return ""
	}
	return rec.request.App.ID
}

// connKey is the key of the connection that a request came on.
type connKey struct{}

// withConn adds to ctx the connection that requests come on, below TLS.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	c, ok := conn.(syscall.Conn)
	if !ok {
		return ctx
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, connKey{}, raw)
}

type recordKey struct{}

func recordOf(r *http.Request) *requestRecord {
	rec, _ := r.Context().Value(recordKey{}).(*requestRecord)
	return rec
}

// RequestOf returns the visit of a request on a tenant's route.
func RequestOf(r *http.Request) *Request { return recordOf(r).request }

// OperatorOf returns the principal of a request on an admin route.
func OperatorOf(r *http.Request) authz.Principal { return recordOf(r).operator }

// RequestID returns the id under which the request stands in the log.
func RequestID(r *http.Request) string { return recordOf(r).id }

// statusClientGone is logged where the client left before there was an answer.
const statusClientGone = 499

// instrumentHandler gives a request its id, survives its panics, and logs and observes it.
func (s *Server) instrumentHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &requestRecord{ResponseWriter: w, id: sanitizeRequestID(r.Header.Get("X-Request-Id")), startedAt: time.Now(), bodyBudget: s.bodyBudget}
		w.Header()["X-Request-Id"] = []string{rec.id}
		if r.ProtoMajor > 1 {
			rec.pieceTimeout = s.options.PieceTimeout // on a connection of its own, the system takes in what is small
		} else {
			rec.conn, _ = r.Context().Value(connKey{}).(syscall.RawConn)
		}
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		r = r.WithContext(recordContext{s.withOrigin(r, rec.id), rec})
		defer rec.responseReservation.ReleaseBytes()
		r.URL.RawPath = "" // routes match the decoded path, so that every spelling of a path is the same path
		defer func() {
			if p := recover(); p != nil {
				if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(p)
				}
				rec.code = Internal
				s.options.Log.ErrorContext(rec.withSpan(r.Context()), "a handler panicked", "request_id", rec.id, "route", rec.route, "panic", p, "stack", string(debug.Stack()))
				if rec.status != 0 {
					defer panic(http.ErrAbortHandler) // half an answer must not look like a whole one
				} else {
					rec.errorEncoder.writeError(rec, rec.id, errorResponse{code: Internal, status: http.StatusInternalServerError, text: textInternal})
				}
			}
			s.logRequest(r, rec, time.Since(rec.startedAt))
		}()
		next.ServeHTTP(rec, r)
	})
}

func (s *Server) logRequest(r *http.Request, rec *requestRecord, d time.Duration) {
	if rec.status == 0 {
		rec.status = http.StatusOK
		if r.Context().Err() != nil {
			rec.status = statusClientGone
		}
	}
	s.options.Observe(Observation{rec.app, rec.agent, r.Method, rec.route, rec.status, rec.code, d})
	s.endTrace(rec, r)
	level := slog.LevelInfo
	if rec.route == "/health" || rec.route == "/ready" {
		level = slog.LevelDebug
	}
	if !s.options.Log.Enabled(r.Context(), level) {
		return
	}
	attrs := make([]slog.Attr, 0, 9)
	attrs = append(attrs, slog.String("request_id", rec.id), slog.String("method", r.Method), slog.String("route", rec.route),
		slog.Int("status", rec.status), slog.Float64("duration_ms", float64(d.Microseconds())/1000))
	if rec.app != "" {
		attrs = append(attrs, slog.String("app", rec.app))
	}
	if rec.agent != "" {
		attrs = append(attrs, slog.String("agent", rec.agent))
	}
	if reason := refusalReason(rec.err); reason != "" {
		attrs = append(attrs, slog.String("reason", reason), slog.String("client", s.clientAddress(r)))
	}
	s.options.Log.LogAttrs(rec.withSpan(r.Context()), level, "request", attrs...)
}

// refusalReason says for the log why a credential was refused, "" where none was.
func refusalReason(err error) string {
	reason := authz.RefusalReason(err)
	if reason == "" && (errors.Is(err, tenancy.ErrUnauthenticated) || errors.Is(err, trigger.ErrUnsigned)) {
		reason = err.Error()
	}
	return reason
}

const maxRequestID = 64

// sanitizeRequestID returns the client's id for the request if it is a sane one, else a new one.
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
