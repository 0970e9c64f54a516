package doctor

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/cmd/stoa/server"
)

// TestSandbox runs the real sandbox of this machine, and one whose helper ends with an error.
func TestSandbox(t *testing.T) {
	t.Parallel()
	i := newTestInspector(t, server.Flags{}, nil)
	checks := i.checkSandbox(t.Context())
	if checks[0].Status != OK {
		t.Logf("ATTENTION: this machine has no complete sandbox, so that only its absence is tested: %s", checks[0].Detail)
		wantCheck(t, checks, "sandbox", Warning, "programs of apps are refused")
	} else {
		wantCheck(t, checks, "sandbox", OK, "programs of apps run in ")
	}
	i.helper = "/bin/false"
	wantCheck(t, i.checkSandbox(t.Context()), "sandbox", Warning, "programs of apps are refused")
}

// TestEgress checks the guard of this binary, and that one which allows this machine is reported.
func TestEgress(t *testing.T) {
	t.Parallel()
	i := newTestInspector(t, server.Flags{}, nil)
	wantCheck(t, i.checkEgress(t.Context()), "egress", OK, "agents cannot reach metadata services")
	i.public = i.private
	wantCheck(t, i.checkEgress(t.Context()), "egress", Failure, "does not refuse 127.0.0.1:80")
}

// TestNames checks which names are looked up, and what a missing name and a silent resolver are.
func TestNames(t *testing.T) {
	t.Parallel()
	cfg := parseConfig(t, `
llms: {m: {provider: openai, base_url: "https://models.example.com/v1", api_key: k}, n: {provider: openai, base_url: "http://10.0.0.1/v1", api_key: k}}
agents:
  a: {llm: m}
  b: {type: remote, url: "https://agents.example.com"}
server: {auth: {enabled: true, issuer: "https://login.example.com", jwks_url: "https://login.example.com/keys", audience: stoa}}
`)
	flags := server.Flags{Database: pointTo("postgres://stoa:" + password + "@db.example.com/stoa"), Redis: pointTo("redis://redis.example.com:6379"), PublicURL: pointTo("https://agents.example.com")}
	tests := []struct {
		name   string
		errs   map[string]error
		status Status
		detail string
	}{
		{"all", nil, OK, "every configured name resolves (5)"},
		{"missing", map[string]error{"redis.example.com": &net.DNSError{IsNotFound: true}}, Failure, "redis.example.com (Redis) does not exist"},
		{"silent", map[string]error{"models.example.com": errors.New("timeout")}, Failure, "models.example.com (llms.m) is not answered"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			i := newTestInspector(t, flags, cfg)
			i.resolve = func(_ context.Context, host string) error { return tt.errs[host] }
			wantCheck(t, i.checkNames(t.Context()), "dns", tt.status, tt.detail)
		})
	}
	i := newTestInspector(t, server.Flags{Database: pointTo("postgres://127.0.0.1/stoa")}, nil)
	wantCheck(t, i.checkNames(t.Context()), "dns", Skipped, "no host is configured")
}

// TestDisk checks the bounds of free space, and folders that cannot be used.
func TestDisk(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		free   int64
		status Status
		detail string
	}{{50 << 20, Failure, "50 MiB free at x"}, {1 << 30, Warning, "1.0 GiB free at x"}, {5 << 30, OK, "5.0 GiB free at x"}} {
		got := rateSpace(tt.free, "x")
		got.Action = ""
		if diff := cmp.Diff(Check{Status: tt.status, Detail: tt.detail}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	gone := filepath.Join(t.TempDir(), "gone")
	i := newTestInspector(t, server.Flags{Database: pointTo("sqlite://" + filepath.Join(gone, "stoa.db"))}, nil)
	wantCheck(t, i.checkDisk(t.Context()), "disk", Failure, gone+" (database) cannot be read")
	here := t.TempDir()
	i = newTestInspector(t, server.Flags{Database: pointTo("sqlite://" + filepath.Join(here, "stoa.db"))}, nil)
	if checks := i.checkDisk(t.Context()); len(checks) != 1 || !strings.Contains(checks[0].Detail, "free at "+here) {
		t.Errorf("%v", checks)
	}
	i = newTestInspector(t, server.Flags{Database: pointTo("postgres://127.0.0.1/stoa")}, nil)
	wantCheck(t, i.checkDisk(t.Context()), "disk", Skipped, "stores nothing")
	if os.Geteuid() == 0 {
		t.Log("ATTENTION: root may write everywhere, so that a folder without permission is not tested")
		return
	}
	if err := os.Chmod(here, 0o500); err != nil {
		t.Fatal(err)
	}
	i = newTestInspector(t, server.Flags{Database: pointTo("sqlite://" + filepath.Join(here, "stoa.db"))}, nil)
	wantCheck(t, i.checkDisk(t.Context()), "disk", Failure, "cannot be written by this user")
}
