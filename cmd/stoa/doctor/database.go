package doctor

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"stoa/migrations"
	"stoa/tenancy/db"
)

// Names of the checks that need the database, in their order.
var (
	postgresChecks = []string{"login", "migration_login", "row_security", "pgvector"}
	schemaChecks   = []string{"migrations", "master_key", "database_clock", "last_backup"}
)

// checkDatabase opens the database for reading and reports its logins, its row-level security, its schema, whether the
// master keys fit, its clock, and the age of its last backup.
func (i *inspector) checkDatabase(ctx context.Context) []Check {
	const name = "database"
	address := i.Settings.Database.URL
	path, isFile := strings.CutPrefix(address, "sqlite://")
	withoutDatabase := func(c Check, reason string) []Check {
		return append([]Check{c}, skipAll(reason, append(postgresChecks, schemaChecks...)...)...)
	}
	if path == ":memory:" {
		return withoutDatabase(warn(name, "in memory: nothing remains when the process ends", "name a file or PostgreSQL with --database"), "the database is in memory")
	}
	if _, err := os.Stat(path); isFile && errors.Is(err, fs.ErrNotExist) {
		return withoutDatabase(warn(name, "there is no file "+path+" yet", "the first stoa serve creates it; if there should be one, correct --database or the folder in which the process is started"), "there is no database yet")
	}
	// The parser's own error could quote a part of the password.
	if _, err := url.Parse(address); err != nil {
		return withoutDatabase(fail(name, "--database is no URL", "write it as postgres://USER:PASSWORD@HOST:5432/NAME, with %XX for special characters of the password"), notOpened)
	}
	d, err := db.Open(ctx, address, db.Options{MaxConns: 2, ReadOnly: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil && isFile {
		return withoutDatabase(describeFileError(path, err), notOpened)
	}
	if err != nil {
		return withoutDatabase(fail(name, i.hidePasswords(err), "check that the database runs and accepts this login from this machine, and correct --database"), notOpened)
	}
	defer func() { _ = d.Close() }() // only reading connections
	checks := []Check{pass(name, "%s", describeDatabase(address))}
	opened := openedDatabase{inspector: i, db: d}
	opened.schema, err = readSchemaStatus(ctx, address)
	if isFile {
		checks = append(checks, skipAll("SQLite has no logins and no row-level security", postgresChecks...)...)
	} else {
		checks = append(checks, opened.checkPostgres(ctx)...)
	}
	return append(checks, opened.checkMigrations(err), opened.checkMasterKey(ctx), opened.checkDatabaseClock(ctx), opened.checkLastBackup(ctx))
}

// describeFileError returns the check of a SQLite file that cannot be opened. SQLite does not name the cause, so that the
// file is opened once more.
func describeFileError(path string, err error) Check {
	const name = "database"
	f, openErr := os.Open(path)
	if openErr == nil {
		_ = f.Close()
	}
	text := path + ": " + strings.Join(strings.Fields(err.Error()), " ")
	if errors.Is(openErr, fs.ErrPermission) {
		text = openErr.Error()
	}
	// 14 is SQLITE_CANTOPEN: of the file, or of the files that SQLite creates next to it.
	if errors.Is(openErr, fs.ErrPermission) || errors.Is(err, fs.ErrPermission) || strings.Contains(text, "(14)") {
		return fail(name, text, fmt.Sprintf("give %s, the files beside it and their folder to the user that runs Stoa (ls -l shows the owner; chown, chmod), and run this as that user", path))
	}
	return fail(name, text, "correct --database if this is not the file of Stoa; else stop the server and restore a backup (docs/operations/backup.md)")
}

// openedDatabase is the database of a deployment while it is checked.
type openedDatabase struct {
	*inspector
	db *db.DB
	// schema is its version, zero if that cannot be read.
	schema migrations.Status
}

// notOpened is why checks are skipped after the database was not opened.
const notOpened = "the database could not be opened"

// hidePasswords returns the text of err in one line, without the passwords of the settings.
func (o Options) hidePasswords(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	for _, address := range []string{o.Settings.Database.URL, o.Settings.Database.MigrateURL, o.Settings.Database.RedisURL} {
		u, err := url.Parse(address)
		if err != nil {
			continue
		}
		password, _ := u.User.Password()
		for _, secret := range []string{password, u.Query().Get("password")} {
			if secret != "" {
				text = strings.ReplaceAll(text, secret, "xxxxx")
			}
		}
	}
	return text
}

// describeDatabase returns the place of the database at a URL without its login.
func describeDatabase(address string) string {
	path, isFile := strings.CutPrefix(address, "sqlite://")
	if isFile {
		return "SQLite file " + path
	}
	u, err := url.Parse(address)
	if err != nil {
		return "PostgreSQL"
	}
	return fmt.Sprintf("PostgreSQL at %s, database %s", cmp.Or(u.Host, u.Query().Get("host"), "the default address"), cmp.Or(strings.TrimPrefix(u.Path, "/"), "of the login"))
}

// readSchemaStatus returns the version of the schema, with the login of the URL.
func readSchemaStatus(ctx context.Context, address string) (status migrations.Status, err error) {
	err = db.ReadSchema(address, func(engine db.Engine, s *sql.DB) error {
		status, err = migrations.ReadStatus(ctx, string(engine), s)
		return err
	})
	return status, err
}

// checkMigrations reports whether the schema is that of this version.
// err is why the version cannot be read.
func (o openedDatabase) checkMigrations(err error) Check {
	const name = "migrations"
	s := o.schema
	detail := fmt.Sprintf("the schema is at %d of %d", s.Current, s.Latest)
	migrates := "stoa migrate up, as the login that owns the tables"
	if !o.Settings.Database.NoMigrate {
		migrates += ", or the next start of a server, brings it up to date"
	}
	switch {
	case err != nil:
		return fail(name, "the version of the schema cannot be read: "+o.hidePasswords(err), "give the login the roles that stoa migrate roles prints, and run stoa migrate up as the owner")
	case s.Obstacle() != "":
		return fail(name, s.Obstacle(), "this version does not start on this database")
	case s.Dirty:
		return fail(name, fmt.Sprintf("migration %d of %d was cut off, or a process is executing it", s.Current, s.Latest), "if none is, repeat it: "+migrates)
	case s.Current == 0 && !o.Settings.Database.NoMigrate:
		return warn(name, "there are no tables yet", "the first start of a server creates them, if its login may; else: "+migrates)
	case s.Current < s.Latest:
		return fail(name, detail, migrates)
	case s.Current > s.Latest:
		return warn(name, detail+": a newer version of Stoa has migrated it", "this version works with it; update this process to the version of the others")
	}
	return pass(name, "%s", detail)
}
