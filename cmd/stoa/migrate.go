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

type migrateCmd struct {
	Action          string `arg:"" optional:"" enum:"up,status" default:"up" help:"up changes the schema, status only looks."`
	Database        string `default:"sqlite://stoa.db" env:"STOA_DATABASE" placeholder:"URL" help:"The database: sqlite://PATH or postgres://... (${default})."`
	MigrateDatabase string `env:"STOA_MIGRATE_DATABASE" placeholder:"URL" help:"The login that may change the schema, where it differs."`
	JSON            bool   `name:"json" help:"Print JSON."`
}

// Run brings the schema of the database up to this version, or shows how far it is.
func (cmd *migrateCmd) Run(ctx context.Context, c *console) error {
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

func describeStatus(s migrations.Status) string {
	switch {
	case s.Dirty:
		return fmt.Sprintf("migration %d of %d was cut off; stoa migrate up runs it again", s.Current, s.Latest)
	case s.Current > s.Latest:
		return fmt.Sprintf("the schema is at %d, of a newer version of Stoa; this one knows %d", s.Current, s.Latest)
	case s.Current < s.Latest:
		return fmt.Sprintf("the schema is at %d of %d; stoa migrate up brings it up to date", s.Current, s.Latest)
	}
	return fmt.Sprintf("the schema is at %d of %d: up to date", s.Current, s.Latest)
}

// migrateSchema brings the schema of d up to this version. It logs in at as, or where d was opened if as is "", and lets
// the login that d was opened with act under Stoa's roles.
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

// findLogin returns the name of the login that d was opened with. Where the same login migrates, the database knows
// it, whatever the URL leaves to defaults.
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
