package doctor

import (
	"errors"
	"testing"

	"stoa/agentsvc/config"
	"stoa/cmd/stoa/server"
)

// TestDefaultApp checks by which settings other machines reach the app default without a credential.
func TestDefaultApp(t *testing.T) {
	t.Parallel()
	const model = "llms: {m: {provider: scripted}}\n"
	agent := parseConfig(t, model+"agents: {a: {llm: m}}\n")
	private := parseConfig(t, model+"agents: {a: {llm: m, visibility: internal}, b: {llm: m, visibility: private}}\n")
	closed := parseConfig(t, model+`agents: {a: {llm: m}}
server: {auth: {enabled: true, issuer: "https://login.example.com", jwks_url: "https://login.example.com/keys", audience: stoa}}
`)
	empty := parseConfig(t, "version: 2\nname: default\nagents: {}\n")
	postgres := pointTo("postgres://stoa:" + password + "@db.example.com/stoa")
	local := pointTo("127.0.0.1")
	tests := []struct {
		name   string
		flags  server.Flags
		cfg    *config.Config
		status Status
		detail string
	}{
		{"every address", server.Flags{}, agent, Warning, "--host (STOA_HOST) is 0.0.0.0"},
		{"loopback", server.Flags{Host: local}, agent, OK, "no other machine"},
		{"public URL", server.Flags{Host: local, PublicURL: pointTo("https://agents.example.com")}, agent, Warning, "--public-url (STOA_PUBLIC_URL) is https://agents.example.com"},
		{"public URL with a password", server.Flags{Host: local, PublicURL: pointTo("https://u:" + password + "@agents.example.com")}, agent, Warning, "--public-url"},
		{"public URL of this machine", server.Flags{Host: local, PublicURL: pointTo("http://localhost:8080")}, agent, OK, "no other machine"},
		{"trusted proxies", server.Flags{Host: local, TrustedProxies: pointTo("127.0.0.1/32")}, agent, Warning, "--trusted-proxies (STOA_TRUSTED_PROXIES)"},
		{"no agent", server.Flags{}, empty, OK, "no agent"},
		{"no public agent", server.Flags{}, private, OK, "no other machine"},
		{"authentication", server.Flags{}, closed, OK, "server.auth is enabled"},
		{"built in", server.Flags{}, nil, Warning, "--host"},
		{"worker", server.Flags{Role: pointTo("worker"), Database: postgres}, agent, OK, "no other machine"},
		{"no file on PostgreSQL", server.Flags{Database: postgres}, nil, Skipped, "no app default"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			wantCheck(t, newTestInspector(t, tt.flags, tt.cfg).checkDefaultApp(t.Context()), "default_app", tt.status, tt.detail)
		})
	}
	i := newTestInspector(t, server.Flags{}, nil)
	i.ConfigErr = errors.New("wrong")
	wantCheck(t, i.checkDefaultApp(t.Context()), "default_app", Skipped, "cannot be used")
}
