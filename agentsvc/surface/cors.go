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
	alsoAllowed = []string{"agent-name", "A2A-Version", "Idempotency-Key", "If-Match", "Last-Event-ID"}
	exposed     = []string{"X-Request-Id", "Retry-After", "RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
)

// cors says which web pages may call. Its headers stand on every answer, since every answer may be read by a page.
type cors struct {
	origins     []string
	all         bool
	methods     []string // one header line
	headers     []string // one header line
	exposed     []string // one header line
	credentials bool
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
	headers, shown := with(slices.Clone(o.AllowedHeaders), alsoAllowed), slices.Clone(exposed)
	for _, r := range routes {
		headers, shown = with(headers, r.Sends), with(shown, r.Reads)
	}
	return &cors{
		origins: o.AllowedOrigins, all: slices.Contains(o.AllowedOrigins, "*") && !o.AllowCredentials,
		methods: []string{strings.Join(o.AllowedMethods, ", ")}, headers: []string{strings.Join(headers, ", ")},
		exposed: []string{strings.Join(shown, ", ")}, credentials: o.AllowCredentials,
	}
}

// with adds to names of headers those of more that are not among them.
func with(names, more []string) []string {
	for _, h := range more {
		if !slices.ContainsFunc(names, func(x string) bool { return strings.EqualFold(x, h) }) {
			names = append(names, h)
		}
	}
	return names
}

// admits reports whether r may change something, or open a connection that a page can read: no page sent it, or one of this
// host or of an origin that may call. Browsers keep answers from pages, but leave it to the server to look at a WebSocket, and
// at what forms could send as well.
func (c *cors) admits(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || c.all || slices.Contains(c.origins, origin) || r.Header.Get("Sec-Fetch-Site") == "same-origin" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, r.Host)
}

// readsOnly reports whether r changes nothing, so that a page that does not get to see the answer has gained nothing.
func readsOnly(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead
}

var star, yes = []string{"*"}, []string{"true"}

// wrap sets the headers and answers OPTIONS on every path.
func (c *cors) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		if origin := r.Header.Get("Origin"); c.all {
			h["Access-Control-Allow-Origin"] = star
		} else {
			h.Add("Vary", "Origin")
			if slices.Contains(c.origins, origin) {
				h["Access-Control-Allow-Origin"] = []string{origin}
				if c.credentials {
					h["Access-Control-Allow-Credentials"] = yes
				}
			}
		}
		h["Access-Control-Allow-Methods"] = c.methods
		h["Access-Control-Allow-Headers"] = c.headers
		h["Access-Control-Expose-Headers"] = c.exposed
		if r.Method == http.MethodOptions {
			recordOf(r).route = "options"
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}
