package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"stoa/cmd/stoa/server"
	"stoa/migrations"
	"stoa/tenancy/db"
)

// databaseFlag is the database of a command that opens it directly.
type databaseFlag struct {
	Database string `placeholder:"URL" help:"The database: sqlite://PATH or postgres://... (STOA_DATABASE, or sqlite://stoa.db)."`
}

// findDatabase returns the URL of the flag, else of the environment, else of the file of a server on SQLite.
func (f databaseFlag) findDatabase() (string, error) {
	url, _, err := server.FindDatabase(f.Database, "")
	return url, err
}

// migrateCmd is `stoa migrate`. It opens the database directly and needs no server.
type migrateCmd struct {
	Action          string `arg:"" optional:"" enum:"up,status,roles" default:"up" help:"up changes the schema, status only shows it, roles prints the SQL that creates PostgreSQL's roles."`
	databaseFlag    `embed:""`
	MigrateDatabase string `placeholder:"URL" help:"The login that may change the schema, where it differs (STOA_MIGRATE_DATABASE)."`
	Owner           string `default:"stoa_owner" placeholder:"NAME" help:"roles: the login that migrates (${default})."`
	Login           string `default:"stoa_login" placeholder:"NAME" help:"roles: the login that serves (${default})."`
	Backup          string `default:"stoa_backup" placeholder:"NAME" help:"roles: the login of pg_dump (${default})."`
	PasswordFile    string `placeholder:"FILE" help:"roles: a file with lines LOGIN=PASSWORD, of the logins that get one."`
	Apply           bool   `help:"roles: create them in --database, whose login must be an administrator's, instead of printing the SQL."`
	JSON            bool   `name:"json" help:"Print JSON."`
}

// Run migrates the schema to this version, or only prints its version (status), or SQL for an administrator (roles).
func (cmd *migrateCmd) Run(ctx context.Context, c *console) error {
	if cmd.Action == "roles" {
		return cmd.runRoles(ctx, c)
	}
	if cmd.Apply || cmd.PasswordFile != "" {
		return &exitError{code: exitUsage, cause: errors.New("--apply and --password-file are for stoa migrate roles")}
	}
	url, migrateURL, err := server.FindDatabase(cmd.Database, cmd.MigrateDatabase)
	if err != nil {
		return &exitError{code: exitUsage, cause: err}
	}
	if cmd.Action == "up" {
		if err := migrateDatabase(ctx, url, migrateURL); err != nil {
			return err
		}
	}
	if !strings.HasPrefix(url, "sqlite://") { // a file has no logins
		url = cmp.Or(migrateURL, url)
	}
	var status migrations.Status
	err = db.ReadSchema(url, func(engine db.Engine, s *sql.DB) error {
		var err error
		status, err = migrations.ReadStatus(ctx, string(engine), s)
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

// runRoles prints the SQL that creates PostgreSQL's roles, or executes it.
func (cmd *migrateCmd) runRoles(ctx context.Context, c *console) error {
	r := migrations.Roles{Owner: cmd.Owner, Login: cmd.Login, Backup: cmd.Backup}
	var err error
	if r.Passwords, err = readPasswords(cmd.PasswordFile); err != nil {
		return &exitError{code: exitUsage, cause: err}
	}
	statements, err := r.SQL()
	if err != nil {
		return &exitError{code: exitUsage, cause: err}
	}
	if !cmd.Apply {
		_, err = io.WriteString(c.out, statements)
		return err
	}
	url, err := cmd.findDatabase()
	if err == nil && !strings.HasPrefix(url, "postgres") {
		err = errors.New("--apply needs --database with a PostgreSQL database and an administrator's login, as in postgres://postgres@db/stoa")
	}
	if err != nil {
		return &exitError{code: exitUsage, cause: err}
	}
	err = db.ReadSchema(url, func(_ db.Engine, s *sql.DB) error { return r.Apply(ctx, s) })
	if err != nil {
		return err
	}
	c.printStatus("the logins %s, %s and %s exist; %d of them have the password of the file", r.Owner, r.Login, r.Backup, len(r.Passwords))
	return nil
}

// readPasswords returns the lines LOGIN=PASSWORD of a file; none if path is "". Empty lines and those that begin with # are
// left out.
func readPasswords(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all, n := map[string]string{}, 0
	for line := range strings.Lines(string(content)) {
		n++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		login, password, ok := strings.Cut(line, "=")
		if _, twice := all[login]; !ok || login == "" || password == "" || twice {
			return nil, fmt.Errorf("%s, line %d: want LOGIN=PASSWORD, once for each login", path, n)
		}
		all[login] = password
	}
	return all, nil
}

// migrateDatabase brings the schema of the database at url to this version.
func migrateDatabase(ctx context.Context, url, migrateURL string) error {
	// A migration uses one connection.
	d, err := db.Open(ctx, url, db.Options{MaxConns: 1})
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return server.MigrateSchema(ctx, d, migrateURL)
}

// describeStatus returns one line about the schema and the command that corrects it.
func describeStatus(s migrations.Status) string {
	switch {
	case s.Obstacle() != "":
		return s.Obstacle()
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
