package surface

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
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
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = tt.peer
			r.Header["X-Forwarded-For"] = tt.forwarded
			if got := trustedProxies(tt.proxies).clientAddress(r); got != tt.want {
				t.Errorf("client = %q, want %q", got, tt.want)
			}
		})
	}
}
