package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
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
	if code := p.Cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(p.Output(), "server.tls: cert_file: open cert.pem") {
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
}
