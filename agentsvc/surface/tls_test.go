package surface_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	conf "stoa/agentsvc/config"
	"stoa/agentsvc/surface"
)

// certificatePair is a self-signed certificate for 127.0.0.1 and its key, in PEM.
type certificatePair struct{ cert, key []byte }

func newPEMs(t *testing.T, serial int64, from, until time.Time) certificatePair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: from, NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return certificatePair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})}
}

// writeFiles writes the pair into files in dir and returns the configuration for them.
func (p certificatePair) writeFiles(t *testing.T, dir string) conf.TLS {
	t.Helper()
	files := conf.TLS{Enabled: true, CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	for name, content := range map[string][]byte{files.CertFile: p.cert, files.KeyFile: p.key} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestTLS checks that the server serves over TLS, and that a renewed certificate is used for new connections while open
// ones continue.
func TestTLS(t *testing.T) {
	t.Parallel()
	h, _ := newFixture(t)
	now := time.Now()
	first, second := newPEMs(t, 1, now.Add(-time.Hour), now.Add(time.Hour)), newPEMs(t, 2, now.Add(-time.Hour), now.Add(time.Hour))
	dir := t.TempDir()
	files := first.writeFiles(t, dir)
	cfg, err := surface.NewTLSConfig(files, slog.New(slog.NewTextHandler(h.Log, nil)))
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
	roots.AppendCertsFromPEM(first.cert)
	roots.AppendCertsFromPEM(second.cert)

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

	if err := os.WriteFile(files.KeyFile, second.key, 0o600); err != nil { // half of the change: the pair does not fit yet
		t.Fatal(err)
	}
	shows := func() int64 {
		return request(client(&tls.Config{}, true)).TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	waitUntil(t, "a pair that does not fit is logged", func() bool { return shows() == 1 && strings.Contains(h.Log.String(), "was not renewed") })
	second.writeFiles(t, dir)
	waitUntil(t, "the new certificate is shown", func() bool { return shows() == 2 })
	if resp := request(persistentClient); !reused || resp.TLS.PeerCertificates[0].SerialNumber.Int64() != 1 {
		t.Error("the connection that was open did not stay")
	}
}

// waitUntil waits for up to ten seconds until condition is true.
func waitUntil(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for began := time.Now(); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("it does not come to hold that %s", what)
		}
	}
}

// TestTLSRefuses checks that files which cannot be used are errors that name the problem.
func TestTLSRefuses(t *testing.T) {
	t.Parallel()
	now := time.Now()
	good, other := newPEMs(t, 1, now.Add(-time.Hour), now.Add(time.Hour)), newPEMs(t, 2, now.Add(-time.Hour), now.Add(time.Hour))
	sealed := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("sealed")})
	tests := []struct {
		name string
		pems certificatePair
		want string
	}{
		{"of another key", certificatePair{good.cert, other.key}, "does not match"},
		{"no PEM", certificatePair{[]byte("x"), good.key}, "failed to find any PEM data"},
		{"encrypted key", certificatePair{good.cert, sealed}, "the key is encrypted"},
		{"expired", newPEMs(t, 3, now.Add(-2*time.Hour), now.Add(-time.Hour)), "the certificate has expired on"},
		{"of tomorrow", newPEMs(t, 4, now.Add(time.Hour), now.Add(2*time.Hour)), "the certificate is not valid before"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := surface.NewTLSConfig(tt.pems.writeFiles(t, t.TempDir()), slog.Default()); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "server.tls: ") {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
	missing := good.writeFiles(t, t.TempDir())
	missing.KeyFile += ".none"
	if _, err := surface.NewTLSConfig(missing, slog.Default()); err == nil || !strings.Contains(err.Error(), "server.tls: key_file: ") {
		t.Errorf("a key file that is not there: %v", err)
	}
	if cfg, err := surface.NewTLSConfig(conf.TLS{}, slog.Default()); cfg != nil || err != nil {
		t.Errorf("turned off: %v, %v", cfg, err)
	}
}
