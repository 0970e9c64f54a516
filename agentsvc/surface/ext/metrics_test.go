package ext_test

import (
	"io"
	"net/http"
	"testing"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/ext"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/tenancy/audit"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	figures := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "figures 1\n") })
	tests := []struct {
		name, token, path, shown string
		want, reported           int
	}{
		{"open", "", "/metrics", "", 200, 0},
		{"token right", "s3cret", "/metrics", "s3cret", 200, 0},
		{"token wrong", "s3cret", "/metrics", "s3crets", 401, 1},
		{"token missing", "s3cret", "/metrics", "", 401, 0},
		{"never below an app", "", "/apps/default/metrics", "", 404, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			reported := 0
			o := surface.Options{Authentication: surface.Authentication{OnFailedCredential: func(f audit.FailedCredential) {
				if f == (audit.FailedCredential{Credential: "metrics_token", Reason: "invalid", Client: "127.0.0.1"}) {
					reported++
				}
			}}}
			h := surfacetest.New(t, surfacetest.Options{Surface: o}, func(*surfacetest.Fixture) []surface.Route {
				return ext.Routes(ext.Options{Metrics: figures, MetricsToken: tt.token})
			})
			resp, body := h.Do(t, http.MethodGet, tt.path, tt.shown, nil)
			if resp.StatusCode != tt.want || tt.want == 200 && body != "figures 1\n" {
				t.Errorf("%d %s, want %d", resp.StatusCode, body, tt.want)
			}
			if reported != tt.reported {
				t.Errorf("%d failures are reported, want %d", reported, tt.reported)
			}
		})
	}
}
