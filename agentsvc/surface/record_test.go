package surface

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"stoa/agentsvc/config"
)

func TestRequestID(t *testing.T) {
	t.Parallel()
	tests := []struct {
		given string
		taken bool
	}{
		{"abc-DEF_1.2:3", true},
		{strings.Repeat("a", 64), true},
		{strings.Repeat("a", 65), false},
		{"", false},
		{"a b", false},
		{"a\r\nlevel=ERROR", false},
		{"ä", false},
	}
	for _, tt := range tests {
		got := sanitizeRequestID(tt.given)
		if (got == tt.given) != tt.taken || got == "" {
			t.Errorf("requestID(%q) = %q, want it taken: %v", tt.given, got, tt.taken)
		}
	}
}

func TestClient(t *testing.T) {
	t.Parallel()
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	tests := []struct {
		name, peer string
		forwarded  []string
		proxies    []netip.Prefix
		want       string
	}{
		{"no proxies", "10.0.0.1:5", []string{"1.2.3.4"}, nil, "10.0.0.1:5"},
		{"a stranger's header", "8.8.8.8:5", []string{"1.2.3.4"}, proxies, "8.8.8.8:5"},
		{"a proxy's header", "10.0.0.1:5", []string{"1.2.3.4"}, proxies, "1.2.3.4"},
		{"what the client made up before", "10.0.0.1:5", []string{"6.6.6.6, 1.2.3.4, 10.0.0.2"}, proxies, "1.2.3.4"},
		{"several lines", "10.0.0.1:5", []string{"6.6.6.6", "1.2.3.4"}, proxies, "1.2.3.4"},
		{"rubbish", "10.0.0.1:5", []string{"1.2.3.4, unknown"}, proxies, "10.0.0.1"},
		{"no header", "10.0.0.1:5", nil, proxies, "10.0.0.1"},
		{"IPv6", "[fd00::1]:5", []string{"2001:db8::1"}, proxies, "2001:db8::1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &Server{options: Options{TrustedProxies: tt.proxies}}
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = tt.peer
			r.Header["X-Forwarded-For"] = tt.forwarded
			if got := s.clientAddress(r); got != tt.want {
				t.Errorf("client = %q, want %q", got, tt.want)
			}
		})
	}
}

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
			if got := newCORS(tt.config, nil).isAllowedOrigin(r); got != tt.want {
				t.Errorf("admits = %v", got)
			}
		})
	}
}

func TestCORS(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		config config.CORS
		routes []Route
		origin string
		want   map[string]string
	}{
		{"default", config.CORS{}, nil, "https://a.test", map[string]string{
			"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
			"Access-Control-Allow-Headers":     "Content-Type, Authorization, agent-name, A2A-Version, Idempotency-Key, If-Match, Last-Event-ID",
			"Access-Control-Allow-Credentials": "", "Vary": "",
		}},
		{"named origin", config.CORS{AllowedOrigins: []string{"https://a.test"}, AllowCredentials: true}, nil, "https://a.test", map[string]string{
			"Access-Control-Allow-Origin": "https://a.test", "Access-Control-Allow-Credentials": "true", "Vary": "Origin",
		}},
		{"another origin", config.CORS{AllowedOrigins: []string{"https://a.test"}, AllowCredentials: true}, nil, "https://b.test", map[string]string{
			"Access-Control-Allow-Origin": "", "Access-Control-Allow-Credentials": "", "Vary": "Origin",
		}},
		{"never all with credentials", config.CORS{AllowedOrigins: []string{"*"}, AllowCredentials: true}, nil, "https://b.test", map[string]string{
			"Access-Control-Allow-Origin": "", "Access-Control-Allow-Credentials": "",
		}},
		{"own methods and headers", config.CORS{AllowedMethods: []string{"GET"}, AllowedHeaders: []string{"x-mine", "if-match"}}, []Route{{RequestHeaders: []string{"X-MINE", "X-Ours"}, ResponseHeaders: []string{"X-Theirs", "retry-after"}}}, "", map[string]string{
			"Access-Control-Allow-Methods":  "GET",
			"Access-Control-Allow-Headers":  "x-mine, if-match, agent-name, A2A-Version, Idempotency-Key, Last-Event-ID, X-Ours",
			"Access-Control-Expose-Headers": "X-Request-Id, Retry-After, RateLimit, RateLimit-Policy, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-Theirs",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			served := false
			h := newCORS(tt.config, tt.routes).wrapHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }))
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
