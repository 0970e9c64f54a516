package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	"stoa/migrations"
	"stoa/tenancy/db"
)

// migrateCmd is `stoa migrate`. It opens the database directly and needs no server.
type migrateCmd struct {
	Action          string `arg:"" optional:"" enum:"up,status" default:"up" help:"up changes the schema, status only shows it."`
	Database        string `default:"sqlite://stoa.db" env:"STOA_DATABASE" placeholder:"URL" help:"The database: sqlite://PATH or postgres://... (${default})."`
	MigrateDatabase string `env:"STOA_MIGRATE_DATABASE" placeholder:"URL" help:"The login that may change the schema, where it differs."`
	JSON            bool   `name:"json" help:"Print JSON."`
}

// Run migrates the schema to this version, or only prints its version (status).
func (cmd *migrateCmd) Run(ctx context.Context, c *console) error {
	// A migration uses one connection.
	d, err := db.Open(ctx, cmd.Database, db.Options{MaxConns: 1})
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()

	if cmd.Action == "up" {
		if err := migrateSchema(ctx, d, cmd.MigrateDatabase); err != nil {
			return err
		}
	}
	var status migrations.Status
	err = d.ChangeSchema(ctx, cmd.MigrateDatabase, func(s *sql.DB) error {
		var err error
		status, err = migrations.ReadStatus(ctx, string(d.Engine()), s)
		return err
	})
	if err != nil {
		return err
	}
	if cmd.JSON {
		return c.printJSON(status)
	}
	_, err = fmt.Fprintln(c.out, describeStatus(status))
	return err
}

// describeStatus returns one line about the schema and the command that corrects it.
func describeStatus(s migrations.Status) string {
	switch {
	// A migration that was interrupted is recorded as dirty until it has been repeated.
	case s.Dirty:
		return fmt.Sprintf("migration %d of %d was cut off; stoa migrate up runs it again", s.Current, s.Latest)
	case s.Current > s.Latest:
		return fmt.Sprintf("the schema is at %d, of a newer version of Stoa; this one knows %d", s.Current, s.Latest)
	case s.Current < s.Latest:
		return fmt.Sprintf("the schema is at %d of %d; stoa migrate up brings it up to date", s.Current, s.Latest)
	}
	return fmt.Sprintf("the schema is at %d of %d: up to date", s.Current, s.Latest)
}

// migrateSchema migrates the schema of d to this version. On PostgreSQL it logs in at the URL as, or with d's own
// login if as is "", and grants d's login the right to act under Stoa's database roles, which row-level security is
// written for.
func migrateSchema(ctx context.Context, d *db.DB, as string) error {
	return d.ChangeSchema(ctx, as, func(s *sql.DB) error {
		var logins []string
		if d.Engine() == db.Postgres {
			login, err := findLogin(ctx, d, as, s)
			if err != nil {
				return err
			}
			logins = append(logins, login)
		}
		return migrations.Up(ctx, string(d.Engine()), s, logins...)
	})
}

// findLogin returns the user name of the login that d was opened with. If the same login migrates, it asks the
// database, because the URL may leave the name to a default.
func findLogin(ctx context.Context, d *db.DB, as string, s *sql.DB) (string, error) {
	if as == "" || as == d.URL() {
		var login string
		err := s.QueryRowContext(ctx, "SELECT current_user").Scan(&login)
		return login, err
	}
	u, err := url.Parse(d.URL())
	if err != nil || u.User.Username() == "" {
		return "", errors.New("with a migrating login of its own, the database URL must name its user, as in postgres://USER@HOST/NAME")
	}
	return u.User.Username(), nil
}
