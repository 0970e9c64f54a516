package listener

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
)

// TestConnections checks the bounds by address: one address leaves connections for others, trusted proxies and
// loopback may have all, and a closed connection can be replaced.
func TestConnections(t *testing.T) {
	t.Parallel()
	c := NewLimiter(10, 3, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	at := func(addr string) netip.Prefix {
		a := netip.MustParseAddr(addr)
		return netip.PrefixFrom(a, a.BitLen())
	}
	for i, want := range []bool{true, true, true, false, false} {
		if got := c.acquire(at("192.0.2.1")); got != want {
			t.Errorf("connection %d of an address: %v", i, got)
		}
	}
	for _, addr := range []string{"192.0.2.2", "127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.1", "10.1.2.3", "10.1.2.3"} {
		if !c.acquire(at(addr)) {
			t.Errorf("%s is refused", addr)
		}
	}
	c.release(at("192.0.2.1"))
	if !c.acquire(at("192.0.2.1")) || c.acquire(at("192.0.2.1")) { // the total bound is reached
		t.Error("a closed connection freed none, or two")
	}
	if c.acquire(at("10.1.2.3")) {
		t.Error("a trusted proxy is let in beyond all that there may be")
	}
	open, refused := c.ReadCounts()
	if open != 10 || refused[boundAddress] != 2 || refused[boundTotal] != 2 {
		t.Errorf("%d are open, refused %v", open, refused)
	}
}

// TestOpenRequests checks that requests over one HTTP/2 connection count each, that one beyond the bound is refused at
// once, and that those over HTTP/1.1 are not counted.
func TestOpenRequests(t *testing.T) {
	t.Parallel()
	c := NewLimiter(3, 3, nil)
	unblock, entered := make(chan struct{}), make(chan struct{}, 10)
	s := httptest.NewUnstartedServer(c.LimitHTTP2Requests(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		if r.URL.Path == "/wait" {
			<-unblock
		}
	})))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	get := func(client *http.Client, path string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Error(err)
			return 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	var waiting sync.WaitGroup
	for range 3 {
		waiting.Go(func() {
			if got := get(s.Client(), "/wait"); got != http.StatusOK {
				t.Errorf("a request within the bound: %d", got)
			}
		})
	}
	for range 3 {
		<-entered
	}
	if got := get(s.Client(), "/"); got != http.StatusServiceUnavailable {
		t.Errorf("a request beyond the bound: %d", got)
	}
	plain := s.Client().Transport.(*http.Transport).Clone()
	plain.ForceAttemptHTTP2, plain.TLSNextProto = false, map[string]func(string, *tls.Conn) http.RoundTripper{}
	plain.TLSClientConfig.NextProtos = []string{"http/1.1"}
	t.Cleanup(plain.CloseIdleConnections)
	if got := get(&http.Client{Transport: plain}, "/"); got != http.StatusOK {
		t.Errorf("a request over HTTP/1.1: %d", got)
	}
	close(unblock)
	waiting.Wait()
	if got := get(s.Client(), "/"); got != http.StatusOK {
		t.Errorf("a request after the others: %d", got)
	}
}

// TestDefaultConnections checks that the default leaves descriptors free, whatever the limit of the process is.
func TestDefaultConnections(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		descriptors uint64
		want        int
	}{{0, maxDefaultConnections}, {1 << 20, maxDefaultConnections}, {20_000, 15_000}, {1024, 768}, {512, 256}, {256, 64}, {2, 1}} {
		if got := maxConnectionsFor(c.descriptors); got != c.want {
			t.Errorf("of %d descriptors %d are for connections, want %d", c.descriptors, got, c.want)
		}
	}
}
