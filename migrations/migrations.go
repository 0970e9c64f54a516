// Package migrations holds the schema of the platform's database, a folder per engine, and brings a database up to
// it. Files are numbered, go one way only and may be run twice: a process killed inside one leaves it "dirty", and
// the next start simply runs it again.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	pgxmigrate "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	sqlitemigrate "github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed postgres/*.sql sqlite/*.sql
var migrationFiles embed.FS

const migrationsTable = "stoa_migrations"

// Status tells how far a database is.
type Status struct {
	Current uint `json:"current"` // 0 = empty
	Latest  uint `json:"latest"`
	Dirty   bool `json:"dirty"` // a migration was cut off; the next Up runs it again
}

// Up brings db, of engine "postgres" or "sqlite", to the latest schema. Any number of processes may call it at once on
// PostgreSQL, where it closes db and the named logins may then act under Stoa's two roles; on SQLite the caller holds
// the file's lock.
func Up(ctx context.Context, engine string, db *sql.DB, logins ...string) error {
	if engine == "postgres" {
		unlock, err := lockDatabase(ctx, db)
		if err != nil {
			return err
		}
		defer unlock()
	}
	m, err := openMigrator(engine, db)
	if err != nil {
		return err
	}
	if engine == "postgres" {
		defer func() { _, _ = m.Close() }()
	}
	return retryOnRace(func() error {
		if err := applyMigrations(engine, m); err != nil || engine != "postgres" {
			return err
		}
		return grantRoles(ctx, db, logins)
	})
}

// retryOnRace repeats f while it meets another process in the catalogue that all databases of a cluster share, where no
// lock of one database holds.
func retryOnRace(f func() error) error {
	for i := 1; ; i++ {
		err := f()
		if err == nil || i == 20 || !isRace(err) {
			return err
		}
		time.Sleep(time.Duration(i) * 20 * time.Millisecond)
	}
}

func applyMigrations(engine string, m *migrate.Migrate) error {
	all, err := listVersions(engine)
	if err != nil {
		return err
	}
	v, dirty, err := m.Version()
	if err == nil && v > all[len(all)-1] {
		return nil // a newer Stoa has been here; its schema serves this one too
	}
	if err == nil && dirty {
		before := -1
		if i := slices.Index(all, v); i > 0 {
			before = int(all[i-1])
		}
		if err := m.Force(before); err != nil {
			return fmt.Errorf("repair migration %d: %w", v, err)
		}
	}
	uerr := m.Up()
	if dirty && isDuplicateColumn(uerr) {
		// SQLite takes a file as a whole or not at all: this one is there, and only the mark of its end is missing.
		if err := m.Force(int(v)); err != nil {
			return fmt.Errorf("repair migration %d: %w", v, err)
		}
		uerr = m.Up()
	}
	if uerr != nil && !errors.Is(uerr, migrate.ErrNoChange) {
		return explainError(uerr)
	}
	return nil
}

// isDuplicateColumn reports whether err says that a column which is to be added to a table of SQLite is there.
func isDuplicateColumn(err error) bool {
	return err != nil && strings.Contains(err.Error(), "duplicate column name")
}

// lockDatabase takes a session lock on the database, so that one process at a time looks at the version and changes it.
func lockDatabase(ctx context.Context, db *sql.DB) (unlock func(), err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect for migrations: %w", err)
	}
	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock(7239, 1)"); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("lock for migrations: %w", err)
	}
	return func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock(7239, 1)")
		_ = conn.Close()
	}, nil
}

// ReadStatus reads how far db is, without changing it.
func ReadStatus(ctx context.Context, engine string, db *sql.DB) (Status, error) {
	all, err := listVersions(engine)
	if err != nil {
		return Status{}, err
	}
	s := Status{Latest: all[len(all)-1]}
	err = db.QueryRowContext(ctx, "SELECT version, dirty FROM "+migrationsTable).Scan(&s.Current, &s.Dirty)
	if errors.Is(err, sql.ErrNoRows) || isMissingTable(err) {
		return s, nil
	}
	return s, err
}

func openMigrator(engine string, db *sql.DB) (*migrate.Migrate, error) {
	src, err := iofs.New(migrationFiles, engine)
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	var driver database.Driver
	if engine == "postgres" {
		driver, err = pgxmigrate.WithInstance(db, &pgxmigrate.Config{MigrationsTable: migrationsTable})
	} else {
		driver, err = sqlitemigrate.WithInstance(db, &sqlitemigrate.Config{MigrationsTable: migrationsTable})
	}
	if err != nil {
		return nil, fmt.Errorf("prepare migrations: %w", err)
	}
	return migrate.NewWithInstance("embedded", src, engine, driver)
}

// listVersions lists the migrations of engine in order.
func listVersions(engine string) ([]uint, error) {
	names, err := fs.Glob(migrationFiles, engine+"/*.up.sql")
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("no migrations for %s: %w", engine, err)
	}
	all := make([]uint, len(names))
	for i, name := range names {
		if _, err := fmt.Sscanf(strings.TrimPrefix(name, engine+"/"), "%d_", &all[i]); err != nil {
			return nil, fmt.Errorf("migration %s: %w", name, err)
		}
	}
	return all, nil
}

// grantRoles lets each login act under the two roles. Where the migrating login may not grant, the operator has done it.
func grantRoles(ctx context.Context, db *sql.DB, logins []string) error {
	for _, login := range logins {
		_, err := db.ExecContext(ctx, fmt.Sprintf(`GRANT stoa_tenant, stoa_platform TO "%s"`, strings.ReplaceAll(login, `"`, `""`)))
		if err != nil && errorCode(err) != "42501" {
			return fmt.Errorf("grant Stoa's roles to %s: %w", login, err)
		}
	}
	return nil
}

func explainError(err error) error {
	if errorCode(err) == "42501" {
		return fmt.Errorf("the migrating login may not create the roles stoa_tenant and stoa_platform; create them beforehand "+
			"(CREATE ROLE stoa_tenant NOLOGIN; CREATE ROLE stoa_platform NOLOGIN; GRANT stoa_tenant, stoa_platform TO the login): %w", err)
	}
	return fmt.Errorf("migrate: %w", err)
}

// isRace reports whether two processes met in the catalogue that a cluster's databases share.
func isRace(err error) bool {
	c := errorCode(err)
	return c == "XX000" && strings.Contains(err.Error(), "concurrently") || c == "23505" || c == "42710"
}

func errorCode(err error) string {
	var e *pgconn.PgError
	var d database.Error
	if errors.As(err, &d) && d.OrigErr != nil {
		err = d.OrigErr
	}
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func isMissingTable(err error) bool {
	return err != nil && (errorCode(err) == "42P01" || strings.Contains(err.Error(), "no such table"))
}
