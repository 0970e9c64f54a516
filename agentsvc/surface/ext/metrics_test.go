package ext_test

import (
	"io"
	"net/http"
	"testing"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/ext"
	"stoa/agentsvc/surface/surfacetest"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	figures := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "figures 1\n") })
	tests := []struct {
		name, token, path, shown string
		want                     int
	}{
		{"open", "", "/metrics", "", 200},
		{"token right", "s3cret", "/metrics", "s3cret", 200},
		{"token wrong", "s3cret", "/metrics", "s3crets", 401},
		{"token missing", "s3cret", "/metrics", "", 401},
		{"never below an app", "", "/apps/default/metrics", "", 404},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := surfacetest.New(t, surfacetest.Options{}, func(*surfacetest.Fixture) []surface.Route {
				return ext.Routes(ext.Options{Metrics: figures, MetricsToken: tt.token})
			})
			resp, body := h.Do(t, http.MethodGet, tt.path, tt.shown, nil)
			if resp.StatusCode != tt.want || tt.want == 200 && body != "figures 1\n" {
				t.Errorf("%d %s, want %d", resp.StatusCode, body, tt.want)
			}
		})
	}
}
