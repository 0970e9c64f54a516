package ops

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
// operator's credential; Options.MetricsToken protects it, if set.
func newMetricsRoute(o Options) surface.Route {
	// Hashes have equal lengths, so the constant-time comparison does not reveal the length of the token.
	want := sha256.Sum256([]byte(o.MetricsToken))
	return surface.Route{
		Method: http.MethodGet, Pattern: cmp.Or(o.MetricsPath, "/metrics"), Kind: surface.Open,
		Serve: func(w http.ResponseWriter, r *http.Request) error {
			if o.MetricsToken != "" {
				scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
				got := sha256.Sum256([]byte(strings.TrimSpace(token)))
				if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
					return authz.ErrUnauthenticated
				}
			}
			o.Metrics.ServeHTTP(w, r)
			return nil
		},
	}
}
