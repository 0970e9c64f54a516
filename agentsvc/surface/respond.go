package surface

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/response"
)

// writeError logs err and writes it as the response, unless one has begun. If the client disconnected and that is what
// failed the request, it only records statusClientGone.
func (s *Server) writeError(w http.ResponseWriter, r *http.Request, rec *requestRecord, err error) {
	rec.err = err
	if r.Context().Err() != nil && apierror.IsUnavailable(err) {
		if rec.writer.Status == 0 {
			rec.writer.Status = statusClientGone
		}
		return
	}
	v := apierror.Classify(err)
	rec.code = v.Code
	if credential, _ := bearerToken(r); credential != "" {
		v.CredentialShown = rec.request == nil // else it is good, and a credential that the agent requires is missing
	}
	s.logError(rec.withSpan(r.Context()), rec, v, err)
	if rec.writer.Status != 0 {
		return // a stream, which has ended with the error itself
	}
	rec.writeError(r, v)
}

// logError logs an error that is the server's: internal ones at error level, unavailable dependencies at warn level.
// Errors of callers are not logged, they are in the request's log line.
func (s *Server) logError(ctx context.Context, rec *requestRecord, v apierror.Response, err error) {
	level := slog.LevelError
	switch {
	case errors.Is(err, apierror.ErrNotReady), errors.Is(err, apierror.ErrStopping), errors.Is(err, agentsvc.ErrStopping), v.Code != apierror.Internal && v.Code != apierror.Unavailable:
		return
	case v.Code == apierror.Unavailable:
		level = slog.LevelWarn
	}
	s.options.Log.LogAttrs(ctx, level, "a request failed", slog.String("request_id", rec.id), slog.String("route", rec.route),
		slog.String("app", rec.logApp()), slog.Any("error", err))
}

// writeError writes v as the response in the form of the route's protocol.
func (rec *requestRecord) writeError(r *http.Request, v apierror.Response) {
	v.WriteHeaders(rec.writer.Header())
	status, body := rec.errorEncoder.Encode(rec.id, v)
	mediaType := ""
	if own, ok := body.(interface{ MediaType() string }); ok {
		mediaType = acceptedMediaType(r, own.MediaType())
	}
	_ = response.WriteMediaType(&rec.writer, status, mediaType, body)
}

// acceptedMediaType returns kind if the client of r accepts it, else "", which is application/json. The official client for Go reads errors of
// version 1.0 as application/json only, and accepts nothing else.
func acceptedMediaType(r *http.Request, kind string) string {
	accepted := strings.Join(r.Header.Values("Accept"), ",")
	for _, pattern := range []string{kind, "application/*", "*/*"} {
		if accepted == "" || strings.Contains(accepted, pattern) {
			return kind
		}
	}
	return ""
}

// HasResponse reports whether the response to r has begun.
func HasResponse(r *http.Request) bool { return recordOf(r).writer.Status != 0 }

// ReportError records err for the request's log line and metrics, and logs it if it is the server's, for protocols that
// write errors themselves.
func ReportError(r *http.Request, err error) {
	rec, v := recordOf(r), apierror.Classify(err)
	if rec.err, rec.code = err, v.Code; rec.request != nil {
		rec.request.server.logError(r.Context(), rec, v, err)
	}
}
