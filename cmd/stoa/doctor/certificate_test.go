package doctor

import (
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/config"
	"stoa/agentsvc/surface/tlscert/tlscerttest"
	"stoa/cmd/stoa/server"
)

// TestCertificate checks pairs of files that a server can and cannot use.
func TestCertificate(t *testing.T) {
	t.Parallel()
	now := time.Now()
	day := 24 * time.Hour
	good := tlscerttest.NewPair(t, 1, now.Add(-day), now.Add(90*day+time.Hour))
	ends := tlscerttest.NewPair(t, 2, now.Add(-day), now.Add(10*day))
	tests := []struct {
		name    string
		pair    tlscerttest.Pair
		trusted bool
		later   time.Duration // how much later it is than now
		url     string
		status  Status
		detail  string
	}{
		{"trusted", good, true, 0, "https://127.0.0.1", OK, "the chain is trusted, 90 days left"},
		{"any name", good, true, 0, "", OK, "90 days left"},
		{"ends soon", ends, true, 0, "", Warning, "days left"},
		{"of no known authority", good, false, 0, "", Warning, "signed by no authority that this machine trusts"},
		{"of another host", good, true, 0, "https://agents.example.com", Warning, "not for agents.example.com"},
		{"ended", tlscerttest.NewPair(t, 3, now.Add(-2*day), now.Add(-day)), true, 0, "", Failure, "has expired on"},
		{"ended by this clock", good, true, 91 * day, "", Failure, "not valid now"},
		{"of another key", tlscerttest.Pair{Cert: good.Cert, Key: ends.Key}, true, 0, "", Failure, "does not match"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := &config.Config{}
			cfg.Server.TLS = tt.pair.WriteFiles(t, t.TempDir())
			i := newInspector(Options{Config: cfg, Roots: x509.NewCertPool(), Settings: server.Settings{Cards: server.CardSettings{PublicURL: tt.url}}})
			if tt.trusted {
				i.Roots.AppendCertsFromPEM(tt.pair.Cert)
			}
			i.now = func() time.Time { return now.Add(tt.later) }
			wantCheck(t, i.checkCertificate(t.Context()), "certificate", tt.status, tt.detail)
		})
	}
	cfg := &config.Config{}
	cfg.Server.TLS = config.TLS{Enabled: true, CertFile: t.TempDir() + "/none.pem", KeyFile: "none.pem"}
	wantCheck(t, newInspector(Options{Config: cfg}).checkCertificate(t.Context()), "certificate", Failure, "no such file")
	wantCheck(t, newInspector(Options{}).checkCertificate(t.Context()), "certificate", Skipped, "not enabled")
}

// hangUp returns the address of a server that closes each connection.
func hangUp(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

// TestPublicURL asks servers and balancers that work, and such that do not.
func TestPublicURL(t *testing.T) {
	t.Parallel()
	start := func(body string) *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/health" {
				http.NotFound(w, r)
				return
			}
			_, _ = io.WriteString(w, body)
		}))
		s.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	stoa, other := start(`{"status": "ok", "version": "v1"}`), start("<html>welcome</html>")
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"status": "ok"}`) }))
	t.Cleanup(plain.Close)
	end := stoa.Certificate().NotAfter
	tests := []struct {
		name, url string
		trusted   bool
		now       time.Time
		status    Status
		detail    string
	}{
		{"none", "", true, time.Now(), Skipped, "no --public-url"},
		{"works", stoa.URL, true, time.Now(), OK, "the chain is trusted"},
		{"ends soon", stoa.URL, true, end.Add(-5 * 24 * time.Hour), Warning, "5 days left"},
		{"ended", stoa.URL, true, end.Add(time.Hour), Failure, "not valid now"},
		{"of no known authority", stoa.URL, false, time.Now(), Failure, "signed by no authority"},
		{"of another host", strings.Replace(stoa.URL, "127.0.0.1", "localhost", 1), true, time.Now(), Failure, "not for localhost"},
		{"another server", other.URL, true, time.Now(), Warning, "not as a server of Stoa"},
		{"wrong route", stoa.URL + "/stoa", true, time.Now(), Warning, "/stoa/health answers 404"},
		{"nothing answers", "https://127.0.0.1:1", true, time.Now(), Warning, "the connection was refused (dial tcp 127.0.0.1:1: connect: connection refused)"},
		{"no TLS", strings.Replace(plain.URL, "http:", "https:", 1), true, time.Now(), Warning, "(http: server gave HTTP response to HTTPS client)"},
		{"hangs up", "https://" + hangUp(t), true, time.Now(), Warning, "the connection failed ("},
		{"http at this machine", plain.URL, true, time.Now(), OK, "answers"},
		{"http", "http://agents.example.com", true, time.Now(), Warning, "is not encrypted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			i := newInspector(Options{Roots: x509.NewCertPool(), Settings: server.Settings{Cards: server.CardSettings{PublicURL: tt.url}}})
			if tt.trusted {
				i.Roots.AddCert(stoa.Certificate())
				i.Roots.AddCert(other.Certificate())
			}
			i.now = func() time.Time { return tt.now }
			wantCheck(t, i.checkPublicURL(t.Context()), "public_url", tt.status, tt.detail)
		})
	}
}

// newProvider starts an identity provider with two documents, in which ISSUER stands for its address.
func newProvider(t *testing.T, keys, description string) string {
	t.Helper()
	var address string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := map[string]string{"/keys": keys, discoveryPath: description}[r.URL.Path]
		if body == "" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, strings.ReplaceAll(body, "ISSUER", address))
	}))
	t.Cleanup(s.Close)
	address = s.URL
	return address
}

// TestIssuer reads the keys and the description of providers.
func TestIssuer(t *testing.T) {
	t.Parallel()
	const (
		keys        = `{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "1", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`
		description = `{"issuer": "ISSUER", "jwks_uri": "ISSUER/keys"}`
		page        = "<!doctype html><title>the-password</title>"
	)
	tests := []struct {
		name, keys, description, clientID string
		check                             string
		status                            Status
		detail                            string
	}{
		{"keys", keys, description, "", "oidc_keys", OK, "can be fetched"},
		{"description", keys, description, "", "oidc_discovery", OK, "describes itself as server.auth does"},
		{"keys are a page", page, description, "", "oidc_keys", Failure, "the answer is not a set of keys"},
		{"no keys", "", description, "", "oidc_keys", Failure, "the answer is 404"},
		{"description is a page", keys, page, "", "oidc_discovery", Warning, "no description of a provider"},
		{"description of a sign-in is a page", keys, page, "console", "oidc_discovery", Failure, "no description of a provider"},
		{"no description", keys, "", "", "oidc_discovery", Warning, "the answer is 404"},
		{"other issuer", keys, `{"issuer": "ISSUER/", "jwks_uri": "ISSUER/keys"}`, "", "oidc_discovery", Failure, "every token is refused"},
		{"other keys", keys, `{"issuer": "ISSUER", "jwks_uri": "ISSUER/jwks"}`, "", "oidc_discovery", Warning, "another address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			address := newProvider(t, tt.keys, tt.description)
			i := newTestInspector(t, server.Flags{}, parseConfig(t, fmt.Sprintf(`
llms: {m: {provider: scripted}}
agents: {a: {llm: m}}
server: {auth: {enabled: true, issuer: %q, jwks_url: "%s/keys", audience: stoa, client_id: %q}}
`, address, address, tt.clientID)))
			defer i.private.Close()
			wantCheck(t, i.checkIssuer(t.Context()), tt.check, tt.status, tt.detail)
		})
	}
	wantCheck(t, newTestInspector(t, server.Flags{}, nil).checkIssuer(t.Context()), "oidc_keys", Skipped, "not enabled")
	worker := parseConfig(t, "llms: {m: {provider: scripted}}\nagents: {a: {llm: m}}\nserver: {auth: {enabled: true, issuer: i, jwks_url: 'https://127.0.0.1:1/keys', audience: stoa}}")
	wantCheck(t, newTestInspector(t, server.Flags{Role: pointTo("worker"), Database: pointTo("postgres://127.0.0.1/stoa")}, worker).checkIssuer(t.Context()), "oidc_keys", Skipped, "--role worker")
}
