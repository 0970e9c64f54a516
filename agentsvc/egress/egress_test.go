package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"code.dny.dev/ssrf"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// allowOnly returns a client that can reach one address only.
func allowOnly(address string) addressGuard {
	return addressGuard{ssrf: ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(netip.MustParsePrefix(address+"/32")))}
}

func startServer(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

func getURL(t *testing.T, c *Client, url string, header ...string) (*http.Response, string, error) {
	t.Helper()
	t.Cleanup(c.Close)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.HTTP().Do(req)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

func TestRefused(t *testing.T) {
	t.Parallel()
	srv := startServer(t, func(http.ResponseWriter, *http.Request) { t.Error("the inside was reached") })
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(srv.URL, "http://"))
	for _, host := range []string{
		"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0.0.0.0", "[::]",
	} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			_, _, err := getURL(t, New(Options{}), "http://"+host+":"+port)
			var refused *NotAllowedError
			if !errors.As(err, &refused) {
				t.Fatalf("error = %v, want a NotAllowedError", err)
			}
			if want := strings.Trim(host, "[]"); refused.Host != want {
				t.Errorf("host = %q, want %q", refused.Host, want)
			}
			if host == "localhost" && strings.Contains(err.Error(), "127.0.0.1") {
				t.Errorf("%q contains what the name resolved to", err)
			}
			if host == "localhost" && strings.Contains(err.Error(), "::1") {
				t.Errorf("%q contains what the name resolved to", err)
			}
		})
	}
}

func TestPrivateNetwork(t *testing.T) {
	t.Parallel()
	srv := startServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "inside") })
	_, body, err := getURL(t, New(Options{PrivateNetwork: true}), srv.URL)
	if err != nil || body != "inside" {
		t.Errorf("got %q, %v", body, err)
	}
}

// TestUserAgent: a server does not learn the library that asks, also behind a redirect.
func TestUserAgent(t *testing.T) {
	t.Parallel()
	srv := startServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/", http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, r.UserAgent())
	})
	for name, tt := range map[string]struct {
		path   string
		header []string
		want   string
	}{
		"default":    {"/", nil, "stoa"},
		"redirected": {"/moved", nil, "stoa"},
		"named":      {"/", []string{"User-Agent", "acme/1"}, "acme/1"},
	} {
		if _, body, err := getURL(t, New(Options{PrivateNetwork: true}), srv.URL+tt.path, tt.header...); err != nil || body != tt.want {
			t.Errorf("%s: got %q, %v", name, body, err)
		}
	}
}

func TestSchemes(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"ftp://example.com/", "file:///etc/passwd", "unix:///run/x.sock"} {
		if _, _, err := getURL(t, New(Options{PrivateNetwork: true}), url); err == nil || PublicMessage(err) != errScheme.Error() {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestNoProxyFromEnvironment(t *testing.T) {
	proxied := startServer(t, func(http.ResponseWriter, *http.Request) { t.Error("the proxy was asked") })
	t.Setenv("HTTP_PROXY", proxied.URL)
	t.Setenv("ALL_PROXY", proxied.URL)
	c := New(Options{})
	if c.transport.Proxy != nil {
		t.Error("a proxy function is set")
	}
	if _, _, err := getURL(t, c, "http://localhost:1"); err == nil {
		t.Error("answered")
	}
}

func TestRebinding(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	srv := startServer(t, func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		w.Header().Set("Connection", "close")
	})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(srv.URL, "http://"))
	// The name first points to the one address this client may reach, later to one that it may not.
	resolver := startNameServer(t, func(n int64) netip.Addr {
		if n == 1 {
			return netip.MustParseAddr("127.0.0.1")
		}
		return netip.MustParseAddr("127.0.0.2")
	})
	c := newClient(Options{Resolver: resolver}, allowOnly("127.0.0.1"))
	url := "http://rebind.example:" + port
	if _, _, err := getURL(t, c, url); err != nil {
		t.Fatal(err)
	}
	_, _, err := getURL(t, c, url)
	var refused *NotAllowedError
	if !errors.As(err, &refused) || refused.Host != "rebind.example" {
		t.Errorf("second call: %v", err)
	}
	if strings.Contains(err.Error(), "127.0.0.2") {
		t.Errorf("%q contains what the name resolved to", err)
	}
	if hits.Load() != 1 {
		t.Errorf("%d calls arrived, want 1", hits.Load())
	}
}

func TestUnknownNameHidesNameServer(t *testing.T) {
	t.Parallel()
	resolver := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("name server 10.0.0.53 is away")
	}}
	_, _, err := getURL(t, New(Options{Resolver: resolver}), "http://nowhere.example")
	if err == nil {
		t.Fatal("answered")
	}
	if _, server, _ := strings.Cut(err.Error(), " on "); server != "" {
		t.Errorf("%q contains the name server", err)
	}
}

// TestIsUnsent checks which errors prove that nothing of the request was sent.
func TestIsUnsent(t *testing.T) {
	t.Parallel()
	aborting := startServer(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	stopped := httptest.NewServer(nil)
	stopped.Close()
	resolver := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("away") }}
	for name, c := range map[string]struct {
		o    Options
		url  string
		want bool
	}{
		"refused":      {Options{PrivateNetwork: true}, stopped.URL, true},
		"not allowed":  {Options{}, stopped.URL, true},
		"no such name": {Options{Resolver: resolver}, "http://nowhere.example", true},
		"no http":      {Options{}, "ftp://example.com", true},
		"cut off":      {Options{PrivateNetwork: true}, aborting.URL, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, _, err := getURL(t, New(c.o), c.url); err == nil || IsUnsent(err) != c.want {
				t.Errorf("%v: unsent %v, want %v", err, IsUnsent(err), c.want)
			}
		})
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	var chain *httptest.Server
	chain = startServer(t, func(w http.ResponseWriter, r *http.Request) {
		var n int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &n)
		if n > 0 {
			http.Redirect(w, r, fmt.Sprintf("%s/%d", chain.URL, n-1), http.StatusFound)
		}
	})
	c := New(Options{PrivateNetwork: true})
	if _, _, err := getURL(t, c, chain.URL+"/3"); err != nil {
		t.Errorf("three redirects: %v", err)
	}
	if _, _, err := getURL(t, c, chain.URL+"/4"); !errors.Is(err, errTooManyRedirects) {
		t.Errorf("four redirects: %v", err)
	}
}

func TestRedirectInside(t *testing.T) {
	t.Parallel()
	inside := startServer(t, func(http.ResponseWriter, *http.Request) { t.Error("the inside was reached") })
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(inside.URL, "http://"))
	for _, target := range []string{"http://127.0.0.2:" + port, "http://2130706434:" + port, "http://169.254.169.254/latest", "file:///etc/passwd"} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			outside := startServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", target)
				w.WriteHeader(http.StatusTemporaryRedirect)
			})
			_, _, err := getURL(t, newClient(Options{}, allowOnly("127.0.0.1")), outside.URL)
			if err == nil {
				t.Fatal("followed")
			}
		})
	}
}

func TestRedirectDropsCredentials(t *testing.T) {
	t.Parallel()
	seen := make(chan http.Header, 4)
	record := func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header.Clone() }
	other := startServer(t, record)
	var first *httptest.Server
	first = startServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/same":
			http.Redirect(w, r, first.URL+"/end", http.StatusFound)
		case "/other":
			http.Redirect(w, r, other.URL, http.StatusFound)
		default:
			record(w, r)
		}
	})
	tests := []struct {
		path string
		want bool
	}{{"/same", true}, {"/other", false}}
	for _, tt := range tests {
		c := New(Options{PrivateNetwork: true})
		_, _, err := getURL(t, c, first.URL+tt.path, "Authorization", "Bearer s", "X-Api-Key", "s", "Cookie", "s=s", "Accept", "text/plain")
		if err != nil {
			t.Fatal(err)
		}
		got := <-seen
		for _, name := range []string{"Authorization", "X-Api-Key", "Cookie", "Referer"} {
			if has := got.Get(name) != ""; has != tt.want {
				t.Errorf("%s: header %s arrived: %v, want %v", tt.path, name, has, tt.want)
			}
		}
		if got.Get("Accept") != "text/plain" {
			t.Errorf("%s: Accept is lost", tt.path)
		}
	}
}

func TestCap(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	tests := []struct {
		name  string
		write func(w http.ResponseWriter)
		want  error
	}{
		{"at the limit", func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, limit)) }, nil},
		{"one more", func(w http.ResponseWriter) {
			_, _ = w.Write(make([]byte, limit))
			w.(http.Flusher).Flush()
			_, _ = w.Write([]byte{0})
		}, &TooLargeError{Max: limit}},
		{"100 MB announced", func(w http.ResponseWriter) { w.Header().Set("Content-Length", "100000000") }, &TooLargeError{Max: limit}},
		{"100 MB streamed", func(w http.ResponseWriter) {
			block := make([]byte, 1<<20)
			for range 100 {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}, &TooLargeError{Max: limit}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := startServer(t, func(w http.ResponseWriter, _ *http.Request) { tt.write(w) })
			_, body, err := getURL(t, New(Options{PrivateNetwork: true, MaxBytes: limit}), srv.URL)
			var large *TooLargeError
			if (tt.want != nil) != errors.As(err, &large) {
				t.Fatalf("error = %v, want %v", err, tt.want)
			}
			if len(body) > limit {
				t.Errorf("%d bytes read", len(body))
			}
		})
	}
}

func TestHeaderTimeout(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	srv := startServer(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	_, _, err := getURL(t, New(Options{PrivateNetwork: true, HeaderTimeout: 20 * time.Millisecond}), srv.URL)
	if err == nil || PublicMessage(err) != "no answer in time" {
		t.Errorf("error = %v", err)
	}
}

// TestHTTPWithHeaderTimeout checks that a longer timeout applies to a late header, that a shorter one does not lower
// the client's own, and that the timeout applies to the header only.
func TestHTTPWithHeaderTimeout(t *testing.T) {
	t.Parallel()
	const usual, late = 50 * time.Millisecond, 200 * time.Millisecond
	srv := startServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/header" {
			time.Sleep(late)
		}
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		time.Sleep(late)
		_, _ = io.WriteString(w, "answer")
	})
	c := New(Options{PrivateNetwork: true, HeaderTimeout: usual})
	t.Cleanup(c.Close)
	for _, tt := range []struct {
		path     string
		client   *http.Client
		answered bool
	}{
		{"/header", c.HTTP(), false},
		{"/header", c.HTTPWithHeaderTimeout(time.Minute), true},
		{"/header", c.HTTPWithHeaderTimeout(usual + time.Millisecond), false},
		{"/body", c.HTTP(), true},
		{"/body", c.HTTPWithHeaderTimeout(time.Nanosecond), true},
	} {
		resp, err := tt.client.Get(srv.URL + tt.path)
		var body []byte
		if err == nil {
			body, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		}
		if answered := string(body) == "answer"; answered != tt.answered || !answered && PublicMessage(err) != "no answer in time" {
			t.Errorf("%s: %q, %v, want an answer: %v", tt.path, body, err, tt.answered)
		}
	}
}

func TestHTTP2AndPool(t *testing.T) {
	t.Parallel()
	var conns atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	srv.EnableHTTP2 = true
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	c := New(Options{PrivateNetwork: true, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}})
	for range 3 {
		resp, _, err := getURL(t, c, srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		if resp.ProtoMajor != 2 {
			t.Errorf("protocol %s, want HTTP/2", resp.Proto)
		}
	}
	if conns.Load() != 1 {
		t.Errorf("%d connections for three calls, want 1", conns.Load())
	}
	if _, _, err := getURL(t, New(Options{PrivateNetwork: true}), srv.URL); PublicMessage(err) != "no trusted TLS connection could be made" {
		t.Errorf("unknown authority: %v", err)
	}
}

func TestDialContext(t *testing.T) {
	t.Parallel()
	srv := startServer(t, func(http.ResponseWriter, *http.Request) {})
	address := strings.TrimPrefix(srv.URL, "http://")
	conn, err := New(Options{PrivateNetwork: true}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	var refused *NotAllowedError
	for _, target := range []string{address, "2130706433:80"} {
		if _, err := New(Options{}).DialContext(t.Context(), "tcp", target); !errors.As(err, &refused) {
			t.Errorf("%s: %v", target, err)
		}
	}
	if _, err := New(Options{PrivateNetwork: true}).DialContext(t.Context(), "udp", address); !errors.As(err, &refused) {
		t.Errorf("udp: %v", err)
	}
	if _, err := New(Options{PrivateNetwork: true}).DialContext(t.Context(), "tcp", "no port"); err == nil {
		t.Error("an address without a port is accepted")
	}
	srv.Close()
	_, err = New(Options{PrivateNetwork: true}).DialContext(t.Context(), "tcp", address)
	if PublicMessage(err) != "the connection was refused" || strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("closed port: %v", err)
	}
}
