package surface_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/surface/surfacetest"
)

// TestAnswersTakeMemory checks that a large response reserves memory until it is written, that one which is too large
// is refused before any of it is written, and that a small one reserves none.
func TestAnswersTakeMemory(t *testing.T) {
	var maximum atomic.Int64
	released := make(chan struct{}, 8)
	pool := capacity.NewPool(8<<20, func(n int64) {
		if maximum.Store(max(maximum.Load(), n)); n == 0 {
			released <- struct{}{}
		}
	})
	h := surfacetest.New(t, surfacetest.Options{Default: config, Surface: surface.Options{ResponseMemory: pool}}, func(*surfacetest.Fixture) []surface.Route {
		return []surface.Route{{Method: http.MethodGet, Pattern: "/answer", Kind: surface.Tenant, Query: []string{"size"}, Serve: func(w http.ResponseWriter, r *http.Request) error {
			n := map[string]int{"small": 60_000, "large": 1 << 20, "huge": 3 << 20}[r.URL.Query().Get("size")]
			return response.WriteJSON(w, http.StatusOK, strings.Repeat("x", n))
		}}}
	})
	for _, tt := range []struct {
		size   string
		status int
		most   int64
	}{{"small", http.StatusOK, 0}, {"large", http.StatusOK, 2 * (1<<20 + 3)}, {"huge", http.StatusRequestEntityTooLarge, 0}} {
		maximum.Store(0)
		resp, body := h.Do(t, http.MethodGet, "/answer?size="+tt.size, "", nil)
		if tt.most > 0 {
			<-released
		}
		if resp.StatusCode != tt.status || maximum.Load() != tt.most {
			t.Errorf("%s: %d, %d bytes taken at most, want %d and %d: %.200s", tt.size, resp.StatusCode, maximum.Load(), tt.status, tt.most, body)
		}
	}
}
