package main

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"stoa/cmd/stoa/stoatest"
)

// TestConnections checks the bounds by address: one address leaves connections for others, trusted proxies and
// loopback may have all, and a closed connection can be replaced.
func TestConnections(t *testing.T) {
	t.Parallel()
	c := newConnectionLimiter(10, 3, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
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
	open, refused := c.readCounts()
	if open != 10 || refused[boundAddress] != 2 || refused[boundTotal] != 2 {
		t.Errorf("%d are open, refused %v", open, refused)
	}
}

// TestOpenStreams checks that requests over one HTTP/2 connection count each, that one beyond the bound is refused at once, and that
// those over HTTP/1.1 are not counted.
func TestOpenStreams(t *testing.T) {
	t.Parallel()
	c := newConnectionLimiter(3, 3, nil)
	unblock, entered := make(chan struct{}), make(chan struct{}, 10)
	s := httptest.NewUnstartedServer(c.limitStreams(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
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
		if got := defaultMaxConnections(c.descriptors); got != c.want {
			t.Errorf("of %d descriptors %d are for connections, want %d", c.descriptors, got, c.want)
		}
	}
}

// TestFlood opens more connections than allowed and sends nothing: those beyond the bound are closed and counted, the
// process still reaches its database, and after the flood other clients are accepted.
func TestFlood(t *testing.T) {
	t.Parallel()
	onEachProcessDatabase(t, func(t *testing.T, dir, database string) {
		p := startProcess(t, dir, "--database", database, "--max-connections", "20")
		first := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: 20 * time.Second}
		defer first.CloseIdleConnections()
		healthy := func(client *http.Client) error {
			resp, err := client.Get(p.url + "/health")
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil { // so that the connection is reused
				return err
			}
			if resp.StatusCode != http.StatusOK {
				return errors.New(resp.Status)
			}
			return nil
		}
		if err := healthy(first); err != nil {
			t.Fatal(err)
		}
		var flood []net.Conn
		closed := 0
		for range 60 {
			conn, err := net.Dial("tcp", p.url[len("http://"):])
			if err != nil {
				closed++
				continue
			}
			defer conn.Close()
			flood = append(flood, conn)
		}
		for _, conn := range flood[len(flood)-20:] { // the last ones are beyond the bound
			_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			var timeout net.Error
			if _, err := conn.Read(make([]byte, 1)); err != nil && (!errors.As(err, &timeout) || !timeout.Timeout()) {
				closed++
			}
		}
		if closed < 20 {
			t.Errorf("%d of the last 20 connections were closed", closed)
		}
		if err := healthy(first); err != nil {
			t.Errorf("who was there before the flood: %v", err)
		}
		req, err := http.NewRequest(http.MethodGet, p.url+"/admin/apps", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+stoatest.AdminSecret)
		resp, err := first.Do(req)
		if err != nil {
			t.Fatalf("a request that reads the database: %v", err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("a request that reads the database: %s", resp.Status)
		}
		for _, conn := range flood {
			_ = conn.Close()
		}
		waitWithin(t, 20*time.Second, "another client gets in when the flood is over", func() bool {
			return healthy(&http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}) == nil
		})
	})
}
