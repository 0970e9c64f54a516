package surface

import (
	"net/http"
	"strings"
	"testing"
)

// TestRoutesDoNotHideEachOther checks that two routes at one path, such as metrics at the path of the health check, are
// refused.
func TestRoutesDoNotHideEachOther(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		one, two Route
		twice    bool
	}{
		{Route{Method: http.MethodGet, Pattern: "/health"}, Route{Method: http.MethodGet, Pattern: "/health"}, true},
		{Route{Method: http.MethodGet, Pattern: "/agents/{agent}"}, Route{Method: http.MethodGet, Pattern: "/agents/{x}"}, true},
		{Route{Method: http.MethodGet, Pattern: "/health"}, Route{Method: http.MethodPost, Pattern: "/health"}, false},
		{Route{Method: http.MethodGet, Pattern: "/agents/{agent}"}, Route{Method: http.MethodGet, Pattern: "/agents/metrics"}, false},
	} {
		_, err := New(Options{}, tt.one, tt.two)
		if twice := strings.Contains(err.Error(), "has two handlers"); twice != tt.twice {
			t.Errorf("%s with %s: %v", tt.two.Pattern, tt.one.Pattern, err)
		}
	}
}
