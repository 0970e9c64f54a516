package surface

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"stoa/agentsvc/config"
)

// What clients send and read beyond the specification's headers, whatever their dialect. [Route] has what is a dialect's own.
var (
	extraAllowedHeaders = []string{"agent-name", "A2A-Version", "Idempotency-Key", "If-Match", "Last-Event-ID"}
	exposedHeaders      = []string{"X-Request-Id", "Retry-After", "RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
)

// cors says which web pages may call. Its headers stand on every answer, since every answer may be read by a page.
type cors struct {
	origins          []string
	allowAll         bool
	allowedMethods   []string // one header line
	allowedHeaders   []string // one header line
	exposedHeaders   []string // one header line
	allowCredentials bool
}

func newCORS(o config.CORS, routes []Route) *cors {
	if o.AllowedOrigins == nil {
		o.AllowedOrigins = []string{"*"}
	}
	if len(o.AllowedMethods) == 0 {
		o.AllowedMethods = []string{http.MethodGet, http.MethodPost, http.MethodOptions}
	}
	if len(o.AllowedHeaders) == 0 {
		o.AllowedHeaders = []string{"Content-Type", "Authorization"}
	}
	headers, shown := mergeHeaders(slices.Clone(o.AllowedHeaders), extraAllowedHeaders), slices.Clone(exposedHeaders)
	for _, r := range routes {
		headers, shown = mergeHeaders(headers, r.RequestHeaders), mergeHeaders(shown, r.ResponseHeaders)
	}
	return &cors{
		origins: o.AllowedOrigins, allowAll: slices.Contains(o.AllowedOrigins, "*") && !o.AllowCredentials,
		allowedMethods: []string{strings.Join(o.AllowedMethods, ", ")}, allowedHeaders: []string{strings.Join(headers, ", ")},
		exposedHeaders: []string{strings.Join(shown, ", ")}, allowCredentials: o.AllowCredentials,
	}
}

// mergeHeaders adds to names of headers those of more that are not among them.
func mergeHeaders(names, more []string) []string {
	for _, h := range more {
		if !slices.ContainsFunc(names, func(x string) bool { return strings.EqualFold(x, h) }) {
			names = append(names, h)
		}
	}
	return names
}

// isAllowedOrigin reports whether r may change something, or open a connection that a page can read: no page sent it, or one of this
// host or of an origin that may call. Browsers keep answers from pages, but leave it to the server to look at a WebSocket, and
// at what forms could send as well.
func (c *cors) isAllowedOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || c.allowAll || slices.Contains(c.origins, origin) || r.Header.Get("Sec-Fetch-Site") == "same-origin" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, r.Host)
}

// isReadOnly reports whether r changes nothing, so that a page that does not get to see the answer has gained nothing.
func isReadOnly(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead
}

var headerAny, headerTrue = []string{"*"}, []string{"true"}

// wrapHandler sets the headers and answers OPTIONS on every path.
func (c *cors) wrapHandler(next http.Handler) http.Handler {
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
			recordOf(r).route = "options"
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}
