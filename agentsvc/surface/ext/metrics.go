package ext

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"stoa/agentsvc/surface"
	"stoa/authz"
)

// newMetricsRoute returns the route of the metrics. It is of kind Open, because scrapers have neither an app nor an
// operator's credential; [Options].MetricsToken protects it, if set.
func newMetricsRoute(o Options) surface.Route {
	return surface.Route{
		Method: http.MethodGet, Pattern: cmp.Or(o.MetricsPath, "/metrics"), Kind: surface.Open, AnyQuery: true, // such as name[] of Prometheus
		Serve: func(w http.ResponseWriter, r *http.Request) error {
			if !HasMetricsToken(r, o.MetricsToken) {
				return authz.ErrUnauthenticated
			}
			o.Metrics.ServeHTTP(w, r)
			return nil
		},
	}
}

// HasMetricsToken reports whether a request has the bearer token that readers of the metrics must send; token "" = none
// is needed. Hashes have equal lengths, so the constant-time comparison does not reveal the length of the token.
func HasMetricsToken(r *http.Request, token string) bool {
	if token == "" {
		return true
	}
	scheme, sent, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(strings.TrimSpace(sent)))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(got[:], want[:]) == 1
}
