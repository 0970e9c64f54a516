package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stoa/cmd/stoa/stoatest"
)

// writeCertificate writes a certificate for this machine and its key into dir, and returns a pool that trusts it.
func writeCertificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: cert}, "key.pem": {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
	return trusted
}

const encryptedApp = `
llms: {m: {provider: scripted}}
agents: {assistant: {llm: m}}
server: {tls: {enabled: true, cert_file: cert.pem, key_file: key.pem}}
`

// TestServeTLS checks that a server with TLS accepts TLS only, and does not start without its certificate.
func TestServeTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "stoa.yaml"), []byte(encryptedApp), 0o600); err != nil {
		t.Fatal(err)
	}
	p := stoatest.StartServer(t, "stoa", dir, "--config", "stoa.yaml")
	<-p.Ended()
	if code := p.Cmd.ProcessState.ExitCode(); code != exitUsage || !strings.Contains(p.Output(), "server.tls: cert_file: open cert.pem") {
		t.Errorf("without a certificate: exit code %d, %s", code, p.Output())
	}
	trusted := writeCertificate(t, dir)
	p = stoatest.StartServing(t, "stoa", dir, "--config", "stoa.yaml")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
	resp, err := client.Get(p.URL + "/agents/assistant")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 || !strings.HasPrefix(p.URL, "https://") {
		t.Errorf("%s answers %d over HTTP/%d", p.URL, resp.StatusCode, resp.ProtoMajor)
	}
	// A command that begins without TLS, as it does without --server.
	var written bytes.Buffer
	args := []string{"task", "list", "--server", strings.Replace(p.URL, "https:", "http:", 1), "--token", "t"}
	if code := runCommand(t.Context(), args, &console{in: strings.NewReader(""), out: &written, err: &written}); code != exitFailed || !strings.Contains(written.String(), "use --server "+p.URL) {
		t.Errorf("without TLS: exit code %d, wrote %q, want the address %s", code, written.String(), p.URL)
	}
}

// TestAuthorities checks that commands trust the authorities of --ca, and that a file without a certificate is an error.
func TestAuthorities(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"tasks": [], "next_page_token": ""}`)
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes
	srv.StartTLS()
	t.Cleanup(srv.Close)
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		"ca.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), "empty.pem": nil, "text.pem": []byte("a certificate\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		file string
		code int
		want string
	}{
		{"ca.pem", 0, "ID"},
		{"", exitFailed, "trust the authority of its certificate with --ca FILE"},
		{"empty.pem", exitUsage, "empty.pem holds no certificate"},
		{"text.pem", exitUsage, "text.pem holds no certificate"},
		{"nosuch.pem", exitUsage, "--ca: open "},
	} {
		var written bytes.Buffer
		args := []string{"task", "list", "--server", srv.URL, "--token", "t"}
		if c.file != "" {
			args = append(args, "--ca", filepath.Join(dir, c.file))
		}
		code := runCommand(t.Context(), args, &console{in: strings.NewReader(""), out: &written, err: &written})
		if code != c.code || !strings.Contains(written.String(), c.want) {
			t.Errorf("--ca %s: exit code %d, wrote %q, want %d and %q", c.file, code, written.String(), c.code, c.want)
		}
	}
}
