// Package dbtest gives each test a migrated, empty database of its own on each engine. SQLite is always available.
// PostgreSQL is the server at the URL in STOA_TEST_POSTGRES, which `make test` starts; without it the tests on
// PostgreSQL are skipped, or fail if STOA_TEST_REQUIRE is set. The schema is migrated once, into a template; each test
// gets a copy of it. [WaitUntil] is here because all tests may import this package: it is on the lowest layer.
package dbtest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"stoa/migrations"
	"stoa/tenancy/db"
)

// ForEachEngine runs f as a subtest on each engine with a new database.
func ForEachEngine(t *testing.T, f func(t *testing.T, d *db.DB)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { f(t, NewSQLite(t)) })
	t.Run("postgres", func(t *testing.T) { f(t, NewPostgres(t)) })
}

// NewSQLite returns a migrated database in a new file, closed at the end of the test.
func NewSQLite(t testing.TB) *db.DB {
	t.Helper()
	return Open(t, NewSQLiteURL(t))
}

// NewSQLiteURL returns the URL of a migrated database in a new file that nothing has opened.
func NewSQLiteURL(t testing.TB) string {
	t.Helper()
	migrated, err := migratedSQLiteFile()
	if err != nil {
		t.Fatalf("make the template file: %v", err)
	}
	path := filepath.Join(t.TempDir(), "stoa.db")
	if err := os.WriteFile(path, migrated, 0o600); err != nil {
		t.Fatal(err)
	}
	return "sqlite://" + path
}

// migratedSQLiteFile returns the content of a migrated file; it is made once per process.
var migratedSQLiteFile = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "stoa-template")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "stoa.db")
	if err := migrateURL(context.Background(), "sqlite://"+path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// migrateURL migrates the database at url to the latest schema.
func migrateURL(ctx context.Context, url string) error {
	d, err := db.Open(ctx, url, db.Options{})
	if err != nil {
		return err
	}
	err = d.ChangeSchema(ctx, "", func(s *sql.DB) error { return migrations.Up(ctx, string(d.Engine()), s) })
	if err := errors.Join(err, d.Close()); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// NewPostgres returns a new migrated database on the test server, closed and dropped at the end of the test. Without a
// server it skips the test, or fails it if STOA_TEST_REQUIRE is set.
func NewPostgres(t testing.TB) *db.DB {
	t.Helper()
	return Open(t, NewPostgresURL(t))
}

// NewPostgresURL returns the URL of a new migrated database on the test server, dropped at the end of the test.
func NewPostgresURL(t testing.TB) string {
	t.Helper()
	return newDatabase(t, "stoa_template")
}

// NewEmptyPostgresURL is NewPostgresURL without a schema.
func NewEmptyPostgresURL(t testing.TB) string {
	t.Helper()
	return newDatabase(t, "template0")
}

// NewVectorPostgres is NewPostgres on a server that has the files of the extension vector, in a version that Stoa uses. The
// extension is not installed: [InstallVector] does that. Without the files it skips the test, or fails it if STOA_TEST_REQUIRE
// is set.
func NewVectorPostgres(t testing.TB) *db.DB {
	t.Helper()
	url := NewPostgresURL(t)
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	isThere := false
	if err := conn.QueryRow(context.Background(), "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector')").Scan(&isThere); err != nil {
		t.Fatal(err)
	}
	if !isThere {
		SkipMissing(t, "PostgreSQL has no pgvector; run `make test`, or STOA_TEST_PGVECTOR=$(.ci/pgvector) .ci/with-services go test ...")
	}
	return Open(t, url)
}

// InstallVector installs the extension vector in the database, as an administrator does.
func InstallVector(t testing.TB, d *db.DB) {
	t.Helper()
	ExecSQL(t, d.URL(), "CREATE EXTENSION vector")
}

// ExecSQL executes statements in the PostgreSQL database at url.
func ExecSQL(t testing.TB, url, statements string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.PgConn().Exec(context.Background(), statements).ReadAll(); err != nil {
		t.Fatal(err)
	}
}

// newDatabase returns the URL of a new database on the test server, a copy of template. To copy its files takes half the time
// that writing its pages to the log does.
func newDatabase(t testing.TB, template string) string {
	t.Helper()
	server := os.Getenv("STOA_TEST_POSTGRES")
	if server == "" {
		SkipMissing(t, "STOA_TEST_POSTGRES names no PostgreSQL; run `make test`, or .ci/with-services go test ...")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Fatalf("connect to the test server: %v", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := createTemplate(ctx, conn, server); err != nil {
		t.Fatalf("make the template database: %v", err)
	}
	name := "t_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if _, err := conn.Exec(ctx, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s STRATEGY FILE_COPY", name, template)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		if conn, err := pgx.Connect(ctx, server); err == nil {
			_, _ = conn.Exec(ctx, fmt.Sprintf("DROP DATABASE IF EXISTS %s WITH (FORCE)", name))
			_ = conn.Close(ctx)
		}
	})
	return databaseURL(server, name)
}

// createTemplate creates and migrates the database stoa_template, of which the tests' databases are copies, once per
// server. The advisory lock makes concurrent test processes wait; IS_TEMPLATE is set last and marks it as complete.
func createTemplate(ctx context.Context, conn *pgx.Conn, server string) error {
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(7239, 2)"); err != nil {
		return err
	}
	defer func() { _, _ = conn.Exec(ctx, "SELECT pg_advisory_unlock(7239, 2)") }()
	var there bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = 'stoa_template' AND datistemplate)").Scan(&there); err != nil || there {
		return err
	}
	for _, q := range []string{"DROP DATABASE IF EXISTS stoa_template", "CREATE DATABASE stoa_template"} {
		if _, err := conn.Exec(ctx, q); err != nil {
			return err
		}
	}
	if err := migrateURL(ctx, databaseURL(server, "stoa_template")); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, "ALTER DATABASE stoa_template IS_TEMPLATE true")
	return err
}

// databaseURL returns server with the path replaced by the database's name.
func databaseURL(server, name string) string {
	u, err := url.Parse(server)
	if err != nil {
		panic(err)
	}
	u.Path = "/" + name
	return u.String()
}

// Open opens the database at url and closes it at the end of the test.
func Open(t testing.TB, url string) *db.DB {
	t.Helper()
	d, err := db.Open(context.Background(), url, db.Options{MaxConns: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close the database: %v", err)
		}
	})
	return d
}

// CountLockWaiters returns the number of connections of the PostgreSQL database that wait for a lock.
func CountLockWaiters(t *testing.T, d *db.DB) (n int) {
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) },
		`SELECT COUNT(*) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid WHERE NOT l.granted AND a.datname = current_database()`)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Error(err)
	}
	return n
}

// InsertTask adds the row of a task at epoch 1 and sequence 1, whose owner is ana of the issuer stoa.
func InsertTask(b *db.Batch, tenant db.ID, id string) {
	b.Exec(nil, `INSERT INTO task (tenant, id, agent, context_id, owner_iss, owner_sub, state, epoch, seq, status_seq, turn, created_at, updated_at)
		VALUES ($1, $2, 'a', 'c', 'stoa', 'ana', 'working', 1, 1, 1, 1, 0, 0)`, string(tenant), id)
}

// FailCommits makes each transaction fail at its commit that has updated a row of table such that condition, an
// expression over the row NEW, is true: its statements have returned their rows by then, as on a disk that becomes full.
// It lasts until stop is called.
func FailCommits(t testing.TB, d *db.DB, table, condition string) (stop func()) {
	t.Helper()
	begin := []string{
		"PRAGMA foreign_keys = ON", // only at a commit is a deferred reference checked
		"CREATE TABLE uncommitted (id INTEGER PRIMARY KEY, missing INTEGER REFERENCES uncommitted (id) DEFERRABLE INITIALLY DEFERRED)",
		"CREATE TRIGGER fail_commit AFTER UPDATE ON " + table + " WHEN " + condition + " BEGIN INSERT INTO uncommitted (missing) VALUES (-1); END",
	}
	end := []string{"DROP TRIGGER fail_commit", "DROP TABLE uncommitted", "PRAGMA foreign_keys = OFF"}
	if d.Engine() == db.Postgres {
		begin = []string{
			"CREATE FUNCTION fail_commit() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'no space is left' USING ERRCODE = '53100'; END$$",
			"CREATE CONSTRAINT TRIGGER fail_commit AFTER UPDATE ON " + table + " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (" + condition + ") EXECUTE FUNCTION fail_commit()",
		}
		end = []string{"DROP TRIGGER fail_commit ON " + table, "DROP FUNCTION fail_commit()"}
	}
	change := func(statements []string) {
		t.Helper()
		err := d.ChangeSchema(t.Context(), "", func(conn *sql.DB) error {
			for _, text := range statements {
				if _, err := conn.ExecContext(t.Context(), text); err != nil {
					return fmt.Errorf("%s: %w", text, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	change(begin)
	return func() { t.Helper(); change(end) }
}

// RequireRedisURL returns the URL of the test Redis (STOA_TEST_REDIS). Without one it skips the test, see [SkipMissing].
func RequireRedisURL(t testing.TB) string {
	t.Helper()
	url := os.Getenv("STOA_TEST_REDIS")
	if url == "" {
		SkipMissing(t, "STOA_TEST_REDIS names no Redis; run `make test`, or .ci/with-services go test ...")
	}
	return url
}

// SkipMissing skips a test that needs what this machine does not have, and prints why. It fails the test if
// STOA_TEST_REQUIRE is set.
func SkipMissing(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("STOA_TEST_REQUIRE") != "" {
		t.Fatal(why)
	}
	SkipLoudly(t, why)
}

// SkipLoudly skips a test and prints why, also without -v.
func SkipLoudly(t testing.TB, why string) {
	t.Helper()
	fmt.Fprintf(os.Stdout, "ATTENTION: %s: NOT TESTED: %s\n", t.Name(), why)
	t.SkipNow()
}

// HashFolder returns the hash of each file in a folder. That of the shared memory of a write-ahead log is left out: it has
// the marks of readers, which are no data.
func HashFolder(t testing.TB, folder string) map[string]string {
	t.Helper()
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	hashes := map[string]string{}
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		hashes[file.Name()] = fmt.Sprintf("%x", sha256.Sum256(content))
		if strings.HasSuffix(file.Name(), "-shm") {
			hashes[file.Name()] = "shared memory"
		}
	}
	return hashes
}

// WaitUntil waits until holds returns true, and fails the test if that takes longer than a minute, which only a hang
// does; what says what is waited for.
func WaitUntil(t testing.TB, what string, holds func() bool) {
	t.Helper()
	WaitWithin(t, time.Minute, what, holds)
}

// WaitWithin is WaitUntil with another limit than a minute.
func WaitWithin(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}
