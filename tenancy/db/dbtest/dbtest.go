// Package dbtest gives tests a migrated, empty database of their own on each engine. SQLite is always there;
// PostgreSQL is the server that STOA_TEST_POSTGRES names, which `make test` brings up.
package dbtest

import (
	"context"
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

// ForEachEngine runs f as a subtest on each engine.
func ForEachEngine(t *testing.T, f func(t *testing.T, d *db.DB)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { f(t, NewSQLite(t)) })
	t.Run("postgres", func(t *testing.T) { f(t, NewPostgres(t)) })
}

// NewSQLite returns a migrated database in a file of its own.
func NewSQLite(t testing.TB) *db.DB {
	t.Helper()
	return openDB(t, NewSQLiteURL(t))
}

// NewSQLiteURL returns the address of a migrated database in a file of the test's own.
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

// migratedSQLiteFile is the file that the tests' files are copies of, migrated once.
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

// migrateURL brings a database to the latest schema.
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

// NewPostgres returns a migrated database of its own on the test server. Without a server it skips and says so; where
// STOA_TEST_REQUIRE is set it fails.
func NewPostgres(t testing.TB) *db.DB {
	t.Helper()
	return openDB(t, NewPostgresURL(t))
}

// NewPostgresURL returns the address of a migrated database of the test's own, dropped at the end.
func NewPostgresURL(t testing.TB) string {
	t.Helper()
	server := os.Getenv("STOA_TEST_POSTGRES")
	if server == "" {
		if os.Getenv("STOA_TEST_REQUIRE") != "" {
			t.Fatal("STOA_TEST_POSTGRES is not set: there is no PostgreSQL to test on")
		}
		t.Skip("NOT TESTED ON POSTGRESQL: STOA_TEST_POSTGRES is not set; run `make test`, or .ci/with-services go test ...")
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
	if _, err := conn.Exec(ctx, fmt.Sprintf("CREATE DATABASE %s TEMPLATE stoa_template", name)); err != nil {
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

// createTemplate migrates the database that the tests' databases are copied from, once per server.
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

func databaseURL(server, name string) string {
	u, err := url.Parse(server)
	if err != nil {
		panic(err)
	}
	u.Path = "/" + name
	return u.String()
}

func openDB(t testing.TB, url string) *db.DB {
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
