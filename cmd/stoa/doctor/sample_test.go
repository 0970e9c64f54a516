package doctor

import (
	"context"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/cmd/stoa/server"
	"stoa/tenancy/db"
	"stoa/tenancy/db/backup"
	"stoa/tenancy/db/dbtest"
)

// TestSample compares the output in docs/operations/doctor.md with that of a real deployment of the same kind: a login of
// least privilege, Redis, a balancer with TLS, and a schema that an older version has migrated. Numbers may differ.
func TestSample(t *testing.T) {
	t.Parallel()
	redis := os.Getenv("STOA_TEST_REDIS")
	if redis == "" {
		dbtest.SkipMissing(t, "STOA_TEST_REDIS names no Redis")
	}
	d := newDeployment(t)
	balancer := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"status": "ok"}`) }))
	t.Cleanup(balancer.Close)
	file := filepath.Join(t.TempDir(), "stoa.yaml")
	address := strings.Replace(*d.url(t, d.login), "127.0.0.1", "localhost", 1)
	i := newTestInspector(t, server.Flags{Database: &address, NoMigrate: pointTo(true), Redis: &redis, PublicURL: &balancer.URL}, parseConfig(t, "version: 2\nname: default\nagents: {}\n"))
	i.ConfigFile, i.Roots = file, x509.NewCertPool()
	i.listen = func(context.Context, string) error { return nil } // other tests may have the ports
	i.Roots.AddCert(balancer.Certificate())
	serving, err := db.Open(t.Context(), d.adminURL, db.Options{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	storeSigningKey(t, serving, i.Settings.Database)
	if err := serving.Close(); err != nil {
		t.Fatal(err)
	}
	if err := backup.RecordTime(t.Context(), d.adminURL, time.Now().Add(-8*time.Hour)); err != nil {
		t.Fatal(err)
	}
	dbtest.ExecSQL(t, d.adminURL, "UPDATE stoa_migrations SET version = version - 1")
	report := i.inspect(t.Context())
	for n, c := range report.Checks { // TestSandbox checks what this machine has
		if c.Name == "sandbox" && c.Status != OK {
			t.Logf("ATTENTION: this machine has no complete sandbox: %s", c.Detail)
			report.Checks[n] = pass("sandbox", "programs of apps run in bubblewrap")
		}
	}

	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	redisURL, err := url.Parse(redis)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.NewReplacer(
		file, "/etc/stoa/stoa.yaml", u.Host, "db.example.com:5432", strings.TrimPrefix(u.Path, "/"), "stoa", d.login, "stoa_login",
		redisURL.Host, "redis.example.com:6379", balancer.URL, "https://agents.example.com",
	).Replace(report.Text())
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "operations", "doctor.md"))
	if err != nil {
		t.Fatal(err)
	}
	sample := regexp.MustCompile("(?s)\n```text\n(.*?)```").FindSubmatch(page)
	if sample == nil {
		t.Fatalf("the page has no sample; it would be\n%s", got)
	}
	if diff := cmp.Diff(maskNumbers(string(sample[1])), maskNumbers(got)); diff != "" {
		t.Errorf("(-page +output):\n%s\nthe output is\n%s", diff, got)
	}
}

// maskNumbers replaces each number, and the name of the sandbox, which differ from machine to machine.
func maskNumbers(text string) string {
	text = regexp.MustCompile(`run in \w+`).ReplaceAllString(text, "run in a sandbox")
	return regexp.MustCompile(`\d+`).ReplaceAllString(text, "N")
}
