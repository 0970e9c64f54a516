package runtime_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

const externalDatabaseSource = `
llms: {demo: {provider: scripted}}
agents: {helper: {llm: demo}}
storage: {sessions: {database: own}}
databases: {own: %s}
`

// newAppSQLite and newAppPostgres return an app's own database, as a configuration names it and as a test opens it.
func newAppSQLite(t *testing.T) (yaml, dsn string) {
	path := filepath.Join(t.TempDir(), "own.db")
	return fmt.Sprintf("{driver: sqlite, database: %q}", path), "sqlite://" + path
}

func newAppPostgres(t *testing.T) (yaml, dsn string) {
	dsn = dbtest.NewPostgresURL(t)
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("{driver: postgres, host: %q, port: %s, database: %q, username: %q, max_conns: 2}",
		u.Hostname(), u.Port(), strings.TrimPrefix(u.Path, "/"), u.User.Username()), dsn + "&search_path=stoa"
}

// privateNetworkTenant is a tenant that may call private addresses.
var privateNetworkTenant = runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, DefaultApp: true, PrivateNetwork: true}

// listSessionRows lists the turns of the sessions in a database.
func listSessionRows(t *testing.T, d *db.DB) (rows []string) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error {
		var tenant, context, body string
		var position int64
		err := r.Scan(&tenant, &context, &position, &body)
		rows = append(rows, fmt.Sprintf("%s %s %d", tenant, context, position))
		return err
	}, `SELECT tenant, context_id, position, body FROM session_turn ORDER BY tenant, context_id, position`)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestExternalDatabase stores the sessions of an app in its own database: the tables are created there, and the
// platform's database has no session.
func TestExternalDatabase(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) (string, string){"sqlite": newAppSQLite, "postgres": newAppPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			yaml, dsn := open(t)
			platform := dbtest.NewSQLite(t)
			cfg := mustParse(t, fmt.Sprintf(externalDatabaseSource, yaml), config.Options{})
			for range 2 { // the second app finds the tables
				a := newAppWith(t, platform, cfg, privateNetworkTenant, slog.New(slog.DiscardHandler))
				for _, text := range []string{"one", "two"} {
					sub := newSubmission(text)
					sub.Message.Context = "c1"
					if outcome, _ := runTurn(t, a, sub); outcome.Status.State != agentsvc.Completed {
						t.Fatalf("%s %q", outcome.Status.State, outcome.Status.Message.Text())
					}
				}
				if err := a.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if rows := listSessionRows(t, platform); len(rows) > 0 {
				t.Errorf("the platform has %q", rows)
			}
			configured, err := db.Open(t.Context(), dsn, db.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = configured.Close() }()
			if configured.Engine() == db.Postgres { // the platform's roles do not exist there
				var b db.Batch
				for _, q := range []string{`GRANT USAGE ON SCHEMA stoa TO stoa_platform`, `GRANT SELECT ON session_turn TO stoa_platform`} {
					b.Exec(nil, q)
				}
				grantAsOwner(t, dsn, &b)
			}
			if diff := cmp.Diff([]string{"acme c1 1", "acme c1 2", "acme c1 3", "acme c1 4"}, listSessionRows(t, configured)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestStorageExample stores the sessions of the example in its file.
func TestStorageExample(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("../../examples/storage.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "conversations.db")
	cfg := mustParse(t, strings.Replace(string(src), "conversations.db", path, 1), config.Options{})
	a := newAppWith(t, dbtest.NewSQLite(t), cfg, privateNetworkTenant, slog.New(slog.DiscardHandler))
	if outcome, _ := runTurn(t, a, newSubmissionFor("assistant", "hello")); outcome.Status.Message.Text() != "You said: hello" {
		t.Errorf("%s %q", outcome.Status.State, outcome.Status.Message.Text())
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	configured, err := db.Open(t.Context(), "sqlite://"+path, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = configured.Close() }()
	if rows := listSessionRows(t, configured); len(rows) != 1 {
		t.Errorf("the file has %q", rows)
	}
}

// grantAsOwner executes statements as the owner of a PostgreSQL database.
func grantAsOwner(t *testing.T, dsn string, b *db.Batch) {
	t.Helper()
	u, _ := url.Parse(dsn)
	var port int
	_, _ = fmt.Sscan(u.Port(), &port)
	d, err := db.OpenExternal(t.Context(), db.ExternalDB{
		Driver: db.Postgres, Host: u.Hostname(), Port: port, Database: strings.TrimPrefix(u.Path, "/"), Username: u.User.Username(), MaxConns: 1, Schema: "stoa",
	}, db.Dialer{Dial: (&net.Dialer{}).DialContext})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if err := d.Platform().Do(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// TestExternalDatabaseUnavailable checks that an app loads without its database, and that its runs are retried and then
// fail with a message without an address. A turn that needs no earlier conversation fails at its end only.
func TestExternalDatabaseUnavailable(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	port := silent.Addr().(*net.TCPAddr).Port
	publicTenant := privateNetworkTenant
	publicTenant.DefaultApp, publicTenant.PrivateNetwork = false, false
	for _, c := range []struct {
		name, yaml string
		tenant     runtime.Tenant
		log        string
	}{
		{"nobody listens", "{driver: postgres, host: 127.0.0.1, port: 1, database: x, username: u}", privateNetworkTenant, "the connection was refused"},
		{"no folder", "{driver: sqlite, database: /nowhere/x.db}", privateNetworkTenant, "the connection failed"},
		{"private address", fmt.Sprintf("{driver: postgres, host: 127.0.0.1, port: %d, database: x, username: u}", port), publicTenant, `the address of "127.0.0.1" is not allowed`},
		{"metadata", "{driver: postgres, host: 169.254.169.254, database: x, username: u}", privateNetworkTenant, `the address of "169.254.169.254" is not allowed`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var log logBuffer
			a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, fmt.Sprintf(externalDatabaseSource, c.yaml), config.Options{}), c.tenant, slog.New(slog.NewTextHandler(&log, nil)),
				func(h *runtime.Dependencies) {
					h.Retry = queue.Retry{MaxRetries: 1, InitialDelay: time.Millisecond, MaxDelay: time.Millisecond}
				})
			sub := newSubmission("hello")
			sub.Message.Context = "c1"
			outcome, _ := runTurn(t, a, sub)
			if outcome.Status.State != agentsvc.Failed || outcome.Status.Message.Text() != "The conversation can be neither read nor kept at the moment." {
				t.Errorf("%s %q", outcome.Status.State, outcome.Status.Message.Text())
			}
			if got := log.String(); !strings.Contains(strings.ReplaceAll(got, `\"`, `"`), c.log) || strings.Count(got, "a run failed") != 2 {
				t.Errorf("the log has not twice %q:\n%s", c.log, got)
			}
		})
	}
}

// logBuffer collects log output.
type logBuffer struct {
	mu sync.Mutex
	strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.Write(p)
}

// TestExternalDatabaseShared checks that revisions of an app share one pool of connections, which is closed with the
// last of them.
func TestExternalDatabaseShared(t *testing.T) {
	t.Parallel()
	yaml, dsn := newAppPostgres(t)
	yaml = strings.Replace(yaml, "max_conns: 2", "max_conns: 1", 1)
	cfg := mustParse(t, fmt.Sprintf(externalDatabaseSource, yaml), config.Options{})
	all := &runtime.ExternalDatabases{}
	build := func(tenant db.ID) *runtime.Runtime {
		caller := privateNetworkTenant
		caller.ID = tenant
		return newAppWith(t, dbtest.NewSQLite(t), cfg, caller, slog.New(slog.DiscardHandler), func(h *runtime.Dependencies) {
			h.ExternalDatabases = all
		})
	}
	first, second, other := build("acme"), build("acme"), build("globex")
	for _, a := range []*runtime.Runtime{first, second, other} {
		if outcome, _ := runTurn(t, a, newSubmission("hello")); outcome.Status.State != agentsvc.Completed {
			t.Fatalf("%s %q", outcome.Status.State, outcome.Status.Message.Text())
		}
	}
	admin, err := db.Open(t.Context(), dsn, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	for _, step := range []struct {
		close *runtime.Runtime
		want  int64
	}{{nil, 2}, {first, 2}, {second, 1}, {other, 0}} {
		if step.close != nil {
			if err := step.close.Close(); err != nil {
				t.Fatal(err)
			}
		}
		var got int64
		for range 100 {
			if got = countConnections(t, admin); got == step.want {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if got != step.want {
			t.Errorf("%d connections, want %d", got, step.want)
		}
	}
}

// countConnections counts the connections of apps to a server.
func countConnections(t *testing.T, d *db.DB) (n int64) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) },
		`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'stoa'`)
	if err := d.Platform().Do(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestExternalDatabaseUnavailableAtTheEnd checks that the usage of a turn is recorded although its session cannot be
// stored.
func TestExternalDatabaseUnavailableAtTheEnd(t *testing.T) {
	t.Parallel()
	platform := dbtest.NewSQLite(t)
	cfg := mustParse(t, fmt.Sprintf(externalDatabaseSource, "{driver: postgres, host: 127.0.0.1, port: 1, database: x, username: u}"), config.Options{})
	a := newAppWith(t, platform, cfg, privateNetworkTenant, slog.New(slog.DiscardHandler))
	outcome, lines := runTurn(t, a, newSubmission("hello")) // a context of its own, so nothing is read
	if outcome.Status.State != agentsvc.Failed || outcome.Status.Message.Text() != "The conversation can be neither read nor kept at the moment." {
		t.Errorf("%s %q", outcome.Status.State, outcome.Status.Message.Text())
	}
	if diff := cmp.Diff([]string{"submitted", "working", "chunk You said: hello", "failed"}, lines); diff != "" {
		t.Error(diff)
	}
	evs, err := store.New(platform, "acme").Events.Load(t.Context(), nil, outcome.ID, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(evs, func(ev agentsvc.Event) bool { return ev.Usage != nil }) {
		t.Error("the log knows nothing of the tokens that were used")
	}
}
