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

// newMetricsRoute returns the route of the metrics, behind their token if they have one.
func newMetricsRoute(o Options) surface.Route {
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
