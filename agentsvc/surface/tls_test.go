package surface_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/surface/tlscert"
	"stoa/agentsvc/surface/tlscert/tlscerttest"
	"stoa/tenancy/db/dbtest"
)

// TestTLS checks that the server serves over TLS, and that a renewed certificate is used for new connections while open
// ones continue.
func TestTLS(t *testing.T) {
	t.Parallel()
	h, _ := newFixture(t)
	now := time.Now()
	first, second := tlscerttest.NewPair(t, 1, now.Add(-time.Hour), now.Add(time.Hour)), tlscerttest.NewPair(t, 2, now.Add(-time.Hour), now.Add(time.Hour))
	dir := t.TempDir()
	files := first.WriteFiles(t, dir)
	cfg, err := tlscert.NewConfig(files, slog.New(slog.NewTextHandler(h.Log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := h.Server.NewHTTPServer()
	server.TLSConfig = cfg
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = server.Close(); <-ended })
	url := "https://" + l.Addr().String()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(first.Cert)
	roots.AppendCertsFromPEM(second.Cert)

	client := func(c *tls.Config, http2 bool) *http.Client {
		c.RootCAs = roots
		protocols := &http.Protocols{}
		protocols.SetHTTP1(!http2)
		protocols.SetHTTP2(http2)
		transport := &http.Transport{TLSClientConfig: c, Protocols: protocols}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	reused := false
	request := func(c *http.Client) *http.Response {
		t.Helper()
		trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }}
		req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, url+"/who", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d, %v", resp.StatusCode, err)
		}
		return resp
	}
	persistentClient := client(&tls.Config{}, true)
	if resp := request(persistentClient); resp.ProtoMajor != 2 || resp.TLS.PeerCertificates[0].SerialNumber.Int64() != 1 {
		t.Errorf("HTTP/%d with certificate %v", resp.ProtoMajor, resp.TLS.PeerCertificates[0].SerialNumber)
	}
	if resp := request(client(&tls.Config{}, false)); resp.ProtoMajor != 1 {
		t.Errorf("a client of HTTP/1.1 is answered in HTTP/%d", resp.ProtoMajor)
	}
	old := client(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, false)
	if resp, err := old.Get(url + "/who"); err == nil {
		_ = resp.Body.Close()
		t.Error("TLS 1.1 is spoken")
	}

	if err := os.WriteFile(files.KeyFile, second.Key, 0o600); err != nil { // half of the change: the pair does not fit yet
		t.Fatal(err)
	}
	shows := func() int64 {
		return request(client(&tls.Config{}, true)).TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	dbtest.WaitUntil(t, "a pair that does not fit is told", func() bool { return shows() == 1 && strings.Contains(h.Log.String(), "was not renewed") })
	second.WriteFiles(t, dir)
	dbtest.WaitUntil(t, "the new certificate is shown", func() bool { return shows() == 2 })
	if resp := request(persistentClient); !reused || resp.TLS.PeerCertificates[0].SerialNumber.Int64() != 1 {
		t.Error("the connection that was open did not stay")
	}
}
