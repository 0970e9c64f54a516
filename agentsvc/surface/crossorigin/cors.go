// Package crossorigin decides what web pages may do: [CORS] sets the cross-origin headers and refuses writes from origins
// that are not allowed, [PageGuard] protects apps that need no credential.
package crossorigin

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"stoa/agentsvc/config"
)

// Headers that requests may carry and pages may read in every protocol, besides those that are always allowed.
var (
	extraAllowedHeaders = []string{"agent-name", "A2A-Version", "Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID", "X-Request-Id"}
	exposedHeaders      = []string{"X-Request-Id", "Retry-After", "Location", "ETag", "Idempotent-Replayed", "RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
)

// CORS sets the cross-origin headers of every response and decides which pages may write. It is read-only.
type CORS struct {
	// origins are the allowed origins; "*" in it counts as all only where allowAll is set.
	origins []string
	// allowAll allows pages of every origin, without the browser's credentials.
	allowAll         bool
	allowedMethods   []string
	allowedHeaders   []string
	exposedHeaders   []string
	allowCredentials bool
	// onPreflight is called for each OPTIONS request.
	onPreflight func(*http.Request)
}

// NewCORS returns the cors for the operator's configuration and the headers that single protocols need. Without configured
// origins all are allowed. "*" together with credentials allows none, since a page could then act as its visitor.
func NewCORS(o config.CORS, requestHeaders, responseHeaders []string, onPreflight func(*http.Request)) *CORS {
	if o.AllowedOrigins == nil {
		o.AllowedOrigins = []string{"*"}
	}
	if len(o.AllowedMethods) == 0 {
		o.AllowedMethods = []string{http.MethodGet, http.MethodPost, http.MethodOptions}
	}
	if len(o.AllowedHeaders) == 0 {
		o.AllowedHeaders = []string{"Content-Type", "Authorization"}
	}
	headers := mergeHeaders(mergeHeaders(slices.Clone(o.AllowedHeaders), extraAllowedHeaders), requestHeaders)
	shown := mergeHeaders(slices.Clone(exposedHeaders), responseHeaders)
	return &CORS{
		origins: o.AllowedOrigins, allowAll: slices.Contains(o.AllowedOrigins, "*") && !o.AllowCredentials,
		allowedMethods: []string{strings.Join(o.AllowedMethods, ", ")}, allowedHeaders: []string{strings.Join(headers, ", ")},
		exposedHeaders: []string{strings.Join(shown, ", ")}, allowCredentials: o.AllowCredentials, onPreflight: onPreflight,
	}
}

// mergeHeaders appends to names those of more that it does not have, compared without case.
func mergeHeaders(names, more []string) []string {
	for _, h := range more {
		if !slices.ContainsFunc(names, func(x string) bool { return strings.EqualFold(x, h) }) {
			names = append(names, h)
		}
	}
	return names
}

// IsAllowedOrigin reports whether r may write or open a WebSocket: it comes from no page, from a page of this host, or
// from an allowed origin. CORS only keeps responses from pages; requests that a form could send, and WebSockets, reach
// the server without a preflight, so the server must refuse them itself.
func (c *CORS) IsAllowedOrigin(r *http.Request) bool {
	// Of two origins both must be allowed, so that none is.
	origin := strings.Join(r.Header.Values("Origin"), ", ")
	if origin == "" || c.allowAll || slices.Contains(c.origins, origin) || r.Header.Get("Sec-Fetch-Site") == "same-origin" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, r.Host)
}

// IsReadOnly reports whether r changes nothing. A page that cannot read the response then gains nothing from it.
func IsReadOnly(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead
}

// headerAny and headerTrue are header values that all responses share; they must not be changed.
var headerAny, headerTrue = []string{"*"}, []string{"true"}

// WrapHandler returns a handler that sets the headers and answers OPTIONS on every path.
func (c *CORS) WrapHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		if origin := r.Header.Get("Origin"); c.allowAll {
			h["Access-Control-Allow-Origin"] = headerAny
		} else {
			h.Add("Vary", "Origin")
			if slices.Contains(c.origins, origin) {
				h["Access-Control-Allow-Origin"] = []string{origin}
				if c.allowCredentials {
					h["Access-Control-Allow-Credentials"] = headerTrue
				}
			}
		}
		h["Access-Control-Allow-Methods"] = c.allowedMethods
		h["Access-Control-Allow-Headers"] = c.allowedHeaders
		h["Access-Control-Expose-Headers"] = c.exposedHeaders
		if r.Method == http.MethodOptions {
			c.onPreflight(r)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}
