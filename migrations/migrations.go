// Package migrations holds the schema of the platform's database, in a folder per engine, and brings a database up to
// it. The baseline, number 1, is the whole schema, ordered by domain. Every later change is a file with the next number
// in each folder, whose SQL and comments say what changes; the baseline is not edited once it is released.
// TestEnginesHaveOneSchema fails if the two engines' schemas differ in what it does not list.
//
// A process that is killed within a file leaves the version "dirty", and the next [Up] runs the file again; therefore
// each statement of a file must be repeatable (IF NOT EXISTS and the like).
//
// A running process of the former version may use the database while a new one migrates it, so a change must keep the
// former version working: add tables and columns with defaults, and remove only what no version reads any more. For the
// same reason [Up] never goes back. A change that removes what an earlier version reads comes later, in a version of its
// own, and declares which programs still work with the schema: those that know at least the migration in the view
// stoa_oldest. An earlier one then refuses to start. For example, in a file that removes what programs before migration 7
// read (SQLite needs DROP VIEW IF EXISTS and CREATE VIEW, and no GRANT):
//
//	CREATE OR REPLACE VIEW stoa_oldest AS SELECT 7 AS migration;
//	GRANT SELECT ON stoa_oldest TO stoa_platform;
//
// A file's counterpart NUMBER_NAME.down.sql is for developers: it undoes the change and
// deletes its data.
//
// [SessionMigrations] holds the separate schema of the databases that apps configure.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	pgxmigrate "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	sqlitemigrate "github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// migrationFiles are the migrations of both engines, NUMBER_NAME.up.sql and NUMBER_NAME.down.sql in a folder for each. A
// number may exist for one engine only.
//
//go:embed postgres/*.sql sqlite/*.sql
var migrationFiles embed.FS

// migrationsTable is the table in which golang-migrate stores the version and the dirty mark.
const migrationsTable = "stoa_migrations"

// Status is the state of a database's schema.
type Status struct {
	// Current is the version of the last migration that was started, 0 for an empty database.
	Current uint `json:"current"`
	// Latest is the version of the last migration that this program knows.
	Latest uint `json:"latest"`
	// Dirty means that migration Current was interrupted; the next Up runs it again.
	Dirty bool `json:"dirty"`
	// Oldest is the migration that a program must know at least to work with the schema, 0 if any does. It is read if Current
	// is above Latest.
	Oldest uint `json:"oldest,omitempty"`
	// Unreleased means that the schema was made by a version before the first migration of today.
	Unreleased bool `json:"unreleased,omitempty"`
}

// IsCurrent reports whether this program needs no migration. A newer schema works with it too, unless Obstacle has a
// reason.
func (s Status) IsCurrent() bool {
	return s.Obstacle() == "" && (s.Current > s.Latest || s.Current == s.Latest && !s.Dirty)
}

// Obstacle returns why this program cannot use the schema, which no migration changes, and what to do; "" if it can.
func (s Status) Obstacle() string {
	switch {
	case s.Oldest > s.Latest:
		return fmt.Sprintf("the schema is at %d, of a newer version of Stoa that has removed what this version needs: run a version that knows migration %d; this one knows %d",
			s.Current, s.Oldest, s.Latest)
	case s.Unreleased:
		return fmt.Sprintf("the schema is at %d, of a version of Stoa before the first release, which this version cannot use: continue with that version, or use a new database",
			s.Current)
	}
	return ""
}

// Latest returns the version of the last migration of engine that this program knows.
func Latest(engine string) (uint, error) {
	all, err := listVersions(engine)
	if err != nil {
		return 0, err
	}
	return all[len(all)-1], nil
}

// Up brings db, of the engine "postgres" or "sqlite", to the latest schema. A database with a newer schema is left as
// it is, and is an error if this program cannot use it. On PostgreSQL any number of processes may call Up at once; it closes db, and allows logins to act under Stoa's
// two roles. On SQLite the caller holds the lock on the file.
func Up(ctx context.Context, engine string, db *sql.DB, logins ...string) error {
	if engine == "postgres" {
		unlock, err := lockDatabase(ctx, db)
		if err != nil {
			return err
		}
		defer unlock()
	}
	status, err := ReadStatus(ctx, engine, db)
	if err != nil {
		return explainError(err)
	}
	if obstacle := status.Obstacle(); obstacle != "" {
		return errors.New(obstacle)
	}
	m, err := openMigrator(engine, db)
	if err != nil {
		return explainError(err)
	}
	if engine == "postgres" {
		defer func() { _, _ = m.Close() }()
	}
	return explainError(retryOnRace(func() error {
		if err := applyMigrations(engine, m); err != nil || engine != "postgres" {
			return err
		}
		return grantRoles(ctx, db, logins)
	}))
}

// retryOnRace repeats f, up to 20 times, while it conflicts with another process in PostgreSQL's shared catalogue.
// Roles belong to the whole cluster, where the advisory lock of one database has no effect.
func retryOnRace(f func() error) error {
	for i := 1; ; i++ {
		err := f()
		if err == nil || i == 20 || !isRace(err) {
			return err
		}
		time.Sleep(time.Duration(i) * 20 * time.Millisecond)
	}
}

// applyMigrations runs the migrations that are missing. After an interrupted one it first sets the version back to the
// one before, so that golang-migrate runs it again.
func applyMigrations(engine string, m *migrate.Migrate) error {
	all, err := listVersions(engine)
	if err != nil {
		return err
	}
	v, dirty, err := m.Version()
	if err == nil && v > all[len(all)-1] {
		return nil // a newer version has migrated the database; its schema works with this version too
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
		// On SQLite a file takes effect as a whole or not at all: it is complete, and only the dirty mark was left.
		if err := m.Force(int(v)); err != nil {
			return fmt.Errorf("repair migration %d: %w", v, err)
		}
		uerr = m.Up()
	}
	if uerr != nil && !errors.Is(uerr, migrate.ErrNoChange) {
		return fmt.Errorf("migrate: %w", uerr)
	}
	return nil
}

// isDuplicateColumn reports whether err says that a column to be added exists already; SQLite has no ADD COLUMN IF NOT
// EXISTS.
func isDuplicateColumn(err error) bool {
	return err != nil && strings.Contains(err.Error(), "duplicate column name")
}

// lockDatabase takes a session-level advisory lock, so that only one process at a time reads the version and changes
// it. The numbers are arbitrary but must stay the same in all versions.
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

// ReadStatus returns the state of the schema of db. It changes nothing and works on an empty database. On PostgreSQL it
// needs a login that owns the tables or may act under the role stoa_platform.
func ReadStatus(ctx context.Context, engine string, db *sql.DB) (Status, error) {
	latest, err := Latest(engine)
	if err != nil {
		return Status{}, err
	}
	s := Status{Latest: latest}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return s, err
	}
	defer func() { _ = tx.Rollback() }()
	if engine == "postgres" {
		if _, err := tx.ExecContext(ctx, actAsPlatformSQL); err != nil {
			return s, err
		}
	}
	err = tx.QueryRowContext(ctx, "SELECT version, dirty FROM "+migrationsTable).Scan(&s.Current, &s.Dirty)
	if errors.Is(err, sql.ErrNoRows) || isMissingTable(err) {
		return s, nil
	}
	if err == nil && s.Current > s.Latest {
		return s, s.readNewer(ctx, engine, tx)
	}
	if errorCode(err) == "42501" {
		err = fmt.Errorf("the login may not read the version of the schema: run stoa migrate up as the login that owns the tables, and give this one the roles that stoa migrate roles prints: %w", err)
	}
	return s, err
}

// readNewer completes the state of a schema that is newer than this program.
func (s *Status) readNewer(ctx context.Context, engine string, tx *sql.Tx) error {
	// The table jwks is in the first migration. The versions before it had more migrations, with numbers up to 43.
	query := "SELECT to_regclass('jwks') IS NULL"
	if engine != "postgres" {
		query = "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'jwks')"
	}
	if err := tx.QueryRowContext(ctx, query).Scan(&s.Unreleased); err != nil {
		return err
	}
	err := tx.QueryRowContext(ctx, "SELECT migration FROM stoa_oldest").Scan(&s.Oldest)
	if isMissingTable(err) {
		return nil
	}
	return err
}

// actAsPlatformSQL sets the role stoa_platform for the transaction, where the login itself may not read the version of the
// schema and may act under that role.
const actAsPlatformSQL = `SELECT set_config('role', rolname, true) FROM pg_roles
	WHERE rolname = 'stoa_platform' AND pg_has_role(oid, 'MEMBER') AND NOT has_table_privilege(to_regclass('` + migrationsTable + `'), 'SELECT')`

// openMigrator returns golang-migrate over the embedded files of engine.
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

// listVersions returns the versions of the migrations of engine in order. Glob sorts the names, and all numbers have
// four digits.
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

// protection matches the statement with which a migration protects a table of PostgreSQL by row-level security.
var protection = regexp.MustCompile(`(?m)^SELECT stoa_protect_(?:tenant|platform)\('(\w+)'\);`)

// ProtectedTables returns the names of the tables on PostgreSQL, in order. Row-level security is forced on each of them.
// TestProtectedTables compares them with a database.
func ProtectedTables() []string {
	names, _ := fs.Glob(migrationFiles, "postgres/*.up.sql") // fails for a wrong pattern only
	var tables []string
	for _, name := range names {
		text, _ := migrationFiles.ReadFile(name) // an embedded file
		for _, m := range protection.FindAllSubmatch(text, -1) {
			tables = append(tables, string(m[1]))
		}
	}
	slices.Sort(tables)
	return slices.Compact(tables)
}

// grantRoles allows the platform's role to read the version of the schema, and each login to act under the two roles. If
// the migrating login may not grant them (SQLSTATE 42501 insufficient_privilege), the operator is expected to have done
// it.
func grantRoles(ctx context.Context, db *sql.DB, logins []string) error {
	if _, err := db.ExecContext(ctx, "GRANT SELECT ON "+migrationsTable+" TO stoa_platform"); err != nil && errorCode(err) != "42501" {
		return fmt.Errorf("let the role stoa_platform read the version of the schema: %w", err)
	}
	for _, login := range logins {
		_, err := db.ExecContext(ctx, "GRANT stoa_tenant, stoa_platform TO "+pgx.Identifier{login}.Sanitize())
		if err != nil && errorCode(err) != "42501" {
			return fmt.Errorf("grant Stoa's roles to %s: %w", login, err)
		}
	}
	return nil
}

// explainError adds what the operator can do if the login lacks a right to migrate.
func explainError(err error) error {
	if errorCode(err) == "42501" {
		return fmt.Errorf("this login may not change the schema or create the roles stoa_tenant and stoa_platform: migrate with the login that owns the tables "+
			"(stoa migrate up, or --migrate-database); stoa migrate roles prints the SQL that creates all roles: %w", err)
	}
	return err
}

// isRace reports whether err is a conflict of concurrent changes in the shared catalogue: "tuple concurrently updated"
// (XX000), unique_violation (23505) or duplicate_object (42710).
func isRace(err error) bool {
	c := errorCode(err)
	return c == "XX000" && strings.Contains(err.Error(), "concurrently") || c == "23505" || c == "42710"
}

// errorCode returns the SQLSTATE of err, also if golang-migrate wrapped it; "" if there is none.
func errorCode(err error) string {
	var e *pgconn.PgError
	var d database.Error
	var p *database.Error // golang-migrate returns both
	switch {
	case errors.As(err, &d) && d.OrigErr != nil:
		err = d.OrigErr
	case errors.As(err, &p) && p.OrigErr != nil:
		err = p.OrigErr
	}
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// isMissingTable reports whether err says that a table does not exist, on either engine.
func isMissingTable(err error) bool {
	return err != nil && (errorCode(err) == "42P01" || strings.Contains(err.Error(), "no such table"))
}
