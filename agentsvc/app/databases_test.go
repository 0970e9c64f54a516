package app_test

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
	"stoa/agentsvc/app"
	"stoa/agentsvc/config"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

const ownSource = `
llms: {demo: {provider: scripted}}
agents: {helper: {llm: demo}}
storage: {sessions: {database: own}}
databases: {own: %s}
`

// ownSQLite and ownPostgres are databases of an app's own, as a configuration names them and as a test opens them.
func ownSQLite(t *testing.T) (yaml, dsn string) {
	path := filepath.Join(t.TempDir(), "own.db")
	return fmt.Sprintf("{driver: sqlite, database: %q}", path), "sqlite://" + path
}

func ownPostgres(t *testing.T) (yaml, dsn string) {
	dsn = dbtest.PostgresURL(t)
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("{driver: postgres, host: %q, port: %s, database: %q, username: %q, max_conns: 2}",
		u.Hostname(), u.Port(), strings.TrimPrefix(u.Path, "/"), u.User.Username()), dsn + "&search_path=stoa"
}

// inside is a tenant that may call private addresses.
var inside = app.Tenant{ID: "acme", Name: "acme", Revision: 1, Own: true, Inside: true}

// sessionRows lists the turns of sessions in a database.
func sessionRows(t *testing.T, d *db.DB) (rows []string) {
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

// TestOwnDatabase keeps the conversations of an app in its own database: it makes the tables, and the platform's has
// none of them.
func TestOwnDatabase(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) (string, string){"sqlite": ownSQLite, "postgres": ownPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			yaml, dsn := open(t)
			platform := dbtest.SQLite(t)
			cfg := parsed(t, fmt.Sprintf(ownSource, yaml), config.Options{})
			for range 2 { // the second app finds the tables there
				a := houseOf(t, platform, cfg, inside, slog.New(slog.DiscardHandler))
				for _, text := range []string{"one", "two"} {
					sub := say(text)
					sub.Message.Context = "c1"
					if told, _ := call(t, a, sub); told.Status.State != agentsvc.Completed {
						t.Fatalf("%s %q", told.Status.State, told.Status.Message.Text())
					}
				}
				if err := a.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if rows := sessionRows(t, platform); len(rows) > 0 {
				t.Errorf("the platform has %q", rows)
			}
			own, err := db.Open(t.Context(), dsn, db.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = own.Close() }()
			if own.Engine() == db.Postgres { // the platform's roles are not at home there
				var b db.Batch
				for _, q := range []string{`GRANT USAGE ON SCHEMA stoa TO stoa_platform`, `GRANT SELECT ON session_turn TO stoa_platform`} {
					b.Exec(nil, q)
				}
				grant(t, dsn, &b)
			}
			if diff := cmp.Diff([]string{"acme c1 1", "acme c1 2", "acme c1 3", "acme c1 4"}, sessionRows(t, own)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestStorageExample keeps the conversations of the example in its file.
func TestStorageExample(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("../../examples/storage.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "conversations.db")
	cfg := parsed(t, strings.Replace(string(src), "conversations.db", path, 1), config.Options{})
	a := houseOf(t, dbtest.SQLite(t), cfg, inside, slog.New(slog.DiscardHandler))
	if told, _ := call(t, a, ask("assistant", "hello")); told.Status.Message.Text() != "You said: hello" {
		t.Errorf("%s %q", told.Status.State, told.Status.Message.Text())
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	own, err := db.Open(t.Context(), "sqlite://"+path, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = own.Close() }()
	if rows := sessionRows(t, own); len(rows) != 1 {
		t.Errorf("the file has %q", rows)
	}
}

// grant does what the owner of a PostgreSQL database may.
func grant(t *testing.T, dsn string, b *db.Batch) {
	t.Helper()
	u, _ := url.Parse(dsn)
	var port int
	_, _ = fmt.Sscan(u.Port(), &port)
	d, err := db.OpenGuest(t.Context(), db.Guest{
		Driver: db.Postgres, Host: u.Hostname(), Port: port, Database: strings.TrimPrefix(u.Path, "/"), Username: u.User.Username(), MaxConns: 1, Schema: "stoa",
	}, db.Way{Dial: (&net.Dialer{}).DialContext})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if err := d.Platform().Do(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// TestOwnDatabaseAway: an app whose database cannot be had loads, and its runs are tried again and then fail with words
// that name no address. What needs no conversation from before is lost only at its end.
func TestOwnDatabaseAway(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	port := silent.Addr().(*net.TCPAddr).Port
	outside := inside
	outside.Own, outside.Inside = false, false
	for _, c := range []struct {
		name, yaml string
		tenant     app.Tenant
		log        string
	}{
		{"nobody listens", "{driver: postgres, host: 127.0.0.1, port: 1, database: x, username: u}", inside, "the connection was refused"},
		{"no folder", "{driver: sqlite, database: /nowhere/x.db}", inside, "the connection failed"},
		{"private address", fmt.Sprintf("{driver: postgres, host: 127.0.0.1, port: %d, database: x, username: u}", port), outside, `the address of "127.0.0.1" is not allowed`},
		{"metadata", "{driver: postgres, host: 169.254.169.254, database: x, username: u}", inside, `the address of "169.254.169.254" is not allowed`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var log lines
			a := houseOf(t, dbtest.SQLite(t), parsed(t, fmt.Sprintf(ownSource, c.yaml), config.Options{}), c.tenant, slog.New(slog.NewTextHandler(&log, nil)),
				func(h *app.House) {
					h.Retry = queue.Retry{Max: 1, Initial: time.Millisecond, Limit: time.Millisecond}
				})
			sub := say("hello")
			sub.Message.Context = "c1"
			told, _ := call(t, a, sub)
			if told.Status.State != agentsvc.Failed || told.Status.Message.Text() != "The conversation can be neither read nor kept at the moment." {
				t.Errorf("%s %q", told.Status.State, told.Status.Message.Text())
			}
			if got := log.String(); !strings.Contains(strings.ReplaceAll(got, `\"`, `"`), c.log) || strings.Count(got, "a run failed") != 2 {
				t.Errorf("the log has not twice %q:\n%s", c.log, got)
			}
		})
	}
}

// lines is a log.
type lines struct {
	mu sync.Mutex
	strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.Write(p)
}

// TestOwnDatabaseShared: revisions of an app share one set of connections, which ends with the last of them.
func TestOwnDatabaseShared(t *testing.T) {
	t.Parallel()
	yaml, dsn := ownPostgres(t)
	yaml = strings.Replace(yaml, "max_conns: 2", "max_conns: 1", 1)
	cfg := parsed(t, fmt.Sprintf(ownSource, yaml), config.Options{})
	all := &app.Databases{}
	build := func(tenant db.ID) *app.App {
		who := inside
		who.ID = tenant
		return houseOf(t, dbtest.SQLite(t), cfg, who, slog.New(slog.DiscardHandler), func(h *app.House) {
			h.Databases = all
		})
	}
	first, second, other := build("acme"), build("acme"), build("globex")
	for _, a := range []*app.App{first, second, other} {
		if told, _ := call(t, a, say("hello")); told.Status.State != agentsvc.Completed {
			t.Fatalf("%s %q", told.Status.State, told.Status.Message.Text())
		}
	}
	admin, err := db.Open(t.Context(), dsn, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	for _, step := range []struct {
		close *app.App
		want  int64
	}{{nil, 2}, {first, 2}, {second, 1}, {other, 0}} {
		if step.close != nil {
			if err := step.close.Close(); err != nil {
				t.Fatal(err)
			}
		}
		var got int64
		for range 100 {
			if got = connections(t, admin); got == step.want {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if got != step.want {
			t.Errorf("%d connections, want %d", got, step.want)
		}
	}
}

// connections counts those of apps to a server.
func connections(t *testing.T, d *db.DB) (n int64) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) },
		`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'stoa'`)
	if err := d.Platform().Do(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestOwnDatabaseAwayAtTheEnd: what a turn has spent stays on record when its end cannot be kept.
func TestOwnDatabaseAwayAtTheEnd(t *testing.T) {
	t.Parallel()
	platform := dbtest.SQLite(t)
	cfg := parsed(t, fmt.Sprintf(ownSource, "{driver: postgres, host: 127.0.0.1, port: 1, database: x, username: u}"), config.Options{})
	a := houseOf(t, platform, cfg, inside, slog.New(slog.DiscardHandler))
	told, lines := call(t, a, say("hello")) // in a context of its own, so nothing is read
	if told.Status.State != agentsvc.Failed || told.Status.Message.Text() != "The conversation can be neither read nor kept at the moment." {
		t.Errorf("%s %q", told.Status.State, told.Status.Message.Text())
	}
	if diff := cmp.Diff([]string{"submitted", "working", "chunk You said: hello", "failed"}, lines); diff != "" {
		t.Error(diff)
	}
	evs, err := store.New(platform, "acme").Events(t.Context(), told.ID, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(evs, func(ev agentsvc.Event) bool { return ev.Usage != nil }) {
		t.Error("the log knows nothing of the tokens that were used")
	}
}
