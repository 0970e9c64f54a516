package crossorigin

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"stoa/agentsvc/config"
)

// TestIsAllowedOrigin checks which pages may write or open a WebSocket.
func TestIsAllowedOrigin(t *testing.T) {
	t.Parallel()
	named := config.CORS{AllowedOrigins: []string{"https://a.test"}}
	tests := []struct {
		name         string
		config       config.CORS
		origin, site string
		want         bool
	}{
		{"no page", named, "", "", true},
		{"a named origin", named, "https://a.test", "cross-site", true},
		{"another origin", named, "https://b.test", "cross-site", false},
		{"another scheme", named, "http://a.test", "same-site", false},
		{"no origin to speak of", named, "null", "cross-site", false},
		{"this host", named, "https://stoa.test", "", true},
		{"this host, behind a proxy", named, "https://public.test", "same-origin", true},
		{"any", config.CORS{}, "https://b.test", "cross-site", true},
		{"any with credentials", config.CORS{AllowedOrigins: []string{"*"}, AllowCredentials: true}, "https://b.test", "cross-site", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodPost, "https://stoa.test/agents/assistant", nil)
			for key, value := range map[string]string{"Origin": tt.origin, "Sec-Fetch-Site": tt.site} {
				if value != "" {
					r.Header.Set(key, value)
				}
			}
			if got := NewCORS(tt.config, nil, nil, nil).IsAllowedOrigin(r); got != tt.want {
				t.Errorf("admits = %v", got)
			}
		})
	}
}

func TestCORS(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                string
		config              config.CORS
		requests, responses []string
		origin              string
		want                map[string]string
	}{
		{"default", config.CORS{}, nil, nil, "https://a.test", map[string]string{
			"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
			"Access-Control-Allow-Headers":     "Content-Type, Authorization, agent-name, A2A-Version, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, X-Request-Id",
			"Access-Control-Allow-Credentials": "", "Vary": "",
		}},
		{"named origin", config.CORS{AllowedOrigins: []string{"https://a.test"}, AllowCredentials: true}, nil, nil, "https://a.test", map[string]string{
			"Access-Control-Allow-Origin": "https://a.test", "Access-Control-Allow-Credentials": "true", "Vary": "Origin",
		}},
		{"another origin", config.CORS{AllowedOrigins: []string{"https://a.test"}, AllowCredentials: true}, nil, nil, "https://b.test", map[string]string{
			"Access-Control-Allow-Origin": "", "Access-Control-Allow-Credentials": "", "Vary": "Origin",
		}},
		{"never all with credentials", config.CORS{AllowedOrigins: []string{"*"}, AllowCredentials: true}, nil, nil, "https://b.test", map[string]string{
			"Access-Control-Allow-Origin": "", "Access-Control-Allow-Credentials": "",
		}},
		{"own methods and headers", config.CORS{AllowedMethods: []string{"GET"}, AllowedHeaders: []string{"x-mine", "if-match"}}, []string{"X-MINE", "X-Ours"}, []string{"X-Theirs", "retry-after"}, "", map[string]string{
			"Access-Control-Allow-Methods":  "GET",
			"Access-Control-Allow-Headers":  "x-mine, if-match, agent-name, A2A-Version, Idempotency-Key, If-None-Match, Last-Event-ID, X-Request-Id, X-Ours",
			"Access-Control-Expose-Headers": "X-Request-Id, Retry-After, Location, ETag, Idempotent-Replayed, RateLimit, RateLimit-Policy, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-Theirs",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			served := false
			h := NewCORS(tt.config, tt.requests, tt.responses, nil).WrapHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }))
			r := httptest.NewRequest(http.MethodGet, "/agents", nil)
			if tt.origin != "" {
				r.Header.Set("Origin", tt.origin)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			for key, want := range tt.want {
				if got := w.Header().Get(key); got != want {
					t.Errorf("%s = %q, want %q", key, got, want)
				}
			}
			if !served {
				t.Error("the request was not served")
			}
		})
	}
}
