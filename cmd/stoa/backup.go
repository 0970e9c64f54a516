package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"stoa/cmd/stoa/server"
	"stoa/migrations"
	"stoa/tenancy/db"
	"stoa/tenancy/db/backup"
)

// backupCmd is `stoa backup`. Its commands open the database directly and need no server; one may use it meanwhile.
type backupCmd struct {
	Write  backupWriteCmd  `cmd:"" default:"withargs" help:"Write a backup of the SQLite database to a file, also while the server runs."`
	Record backupRecordCmd `cmd:"" help:"Record that another tool has made a backup, such as pg_dump, for the metric and the alert of its age."`
}

// backupWriteCmd is `stoa backup write`, or `stoa backup` alone.
type backupWriteCmd struct {
	File         string `arg:"" placeholder:"FILE" help:"The file to write. It must not exist."`
	databaseFlag `embed:""`
	JSON         bool `name:"json" help:"Print JSON."`
}

// writtenBackup is the output of `stoa backup --json`.
type writtenBackup struct {
	File string `json:"file"`
	// At is when it was begun: the backup has everything that was answered before.
	At     time.Time         `json:"at"`
	Bytes  int64             `json:"bytes"`
	Schema migrations.Status `json:"schema"`
	// MasterKeys are the ids of the keys that encrypt rows of it. The backup has none of the keys.
	MasterKeys []string `json:"master_keys"`
}

// Run writes the backup and prints what is in it and which keys it needs.
func (cmd *backupWriteCmd) Run(ctx context.Context, c *console) error {
	url, err := cmd.findFile("backup", "pg_dump --format=custom --file "+cmd.File+" as the login stoa_backup, then stoa backup record")
	if err != nil {
		return err
	}
	b := writtenBackup{File: cmd.File, At: time.Now().UTC().Truncate(time.Second)}
	if err := backup.Write(ctx, url, cmd.File); err != nil {
		return err
	}
	info, err := os.Stat(cmd.File)
	if err != nil {
		return err
	}
	b.Bytes = info.Size()
	err = readBackup(ctx, "sqlite://"+cmd.File, func(status migrations.Status, keys []string) error {
		b.Schema, b.MasterKeys = status, keys
		return nil
	})
	if err != nil {
		return err
	}
	// The backup is complete all the same.
	if err := backup.RecordTime(ctx, url, b.At); err != nil {
		c.printStatus("warning: the time of this backup, which the metric stoa_db_last_backup_seconds shows, is not recorded: %v", err)
	}
	if cmd.JSON {
		return c.printJSON(b)
	}
	c.printStatus("%s has the database %s of %s: %s, checked; %s", b.File, strings.TrimPrefix(url, "sqlite://"), b.At.Format(time.RFC3339), formatFileSize(b.Bytes), describeStatus(b.Schema))
	if len(b.MasterKeys) > 0 {
		c.printStatus("it does not have the master key %s, which encrypts a part of it: keep a copy of %s, or of %s, in another place", strings.Join(b.MasterKeys, " and "), server.SecretsFile(url), server.MasterKeyName)
	}
	return nil
}

// backupRecordCmd is `stoa backup record`.
type backupRecordCmd struct {
	databaseFlag `embed:""`
	Begun        time.Time `placeholder:"TIME" help:"When the backup was begun, as in 2026-11-27T03:15:00Z (now)."`
}

// Run records the time of a backup that another tool has made.
func (cmd *backupRecordCmd) Run(ctx context.Context, c *console) error {
	url, err := cmd.findDatabase()
	if err != nil {
		return err
	}
	now := time.Now().UTC().Truncate(time.Second)
	begun := cmp.Or(cmd.Begun.UTC(), now)
	if begun.After(now) {
		return &exitError{code: exitUsage, cause: fmt.Errorf("--begun %s is in the future: it is %s", begun.Format(time.RFC3339), now.Format(time.RFC3339))}
	}
	if err := backup.RecordTime(ctx, url, begun); err != nil {
		return err
	}
	c.printStatus("recorded: the last backup was begun at %s", begun.Format(time.RFC3339))
	return nil
}

// formatFileSize returns the size of a file in kB or MB.
func formatFileSize(n int64) string {
	const kilobyte, megabyte = 1e3, 1e6
	if n < megabyte {
		return fmt.Sprintf("%.1f kB", float64(n)/kilobyte)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/megabyte)
}

// readBackup calls f with the state of the schema and the master keys of the SQLite file at url. A file that has no table
// of Stoa is an error.
func readBackup(ctx context.Context, url string, f func(migrations.Status, []string) error) error {
	return db.ReadSchema(url, func(engine db.Engine, s *sql.DB) error {
		status, err := migrations.ReadStatus(ctx, string(engine), s)
		if err != nil {
			return err
		}
		if status.Current == 0 {
			return errors.New("the SQLite file has no table of Stoa")
		}
		keys, err := server.ListMasterKeys(ctx, s)
		if err != nil {
			return err
		}
		return f(status, keys)
	})
}

// findFile returns the URL of the database, which must be a SQLite file. command is the command's name, and instead what to
// use on PostgreSQL.
func (f databaseFlag) findFile(command, instead string) (string, error) {
	url, err := f.findDatabase()
	switch {
	case err != nil:
		return "", err
	case strings.HasPrefix(url, "postgres"):
		err = fmt.Errorf("the database is on PostgreSQL: stoa %s is for SQLite. Use %s, see docs/operations/backup.md", command, instead)
	case url == "sqlite://:memory:":
		err = errors.New("a database in memory has no file to back up")
	case !strings.HasPrefix(url, "sqlite://"):
		err = errors.New("database URL must begin with sqlite://")
	default:
		return url, nil
	}
	return "", &exitError{code: exitUsage, cause: err}
}

// checkMasterKeys returns an error if the master keys that a server on the SQLite database at url would use lack one of ids.
func checkMasterKeys(url string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	_, keys, source, err := server.DatabaseSettings{URL: url}.FindSecrets()
	if err != nil {
		return err
	}
	if keys == nil {
		path := server.SecretsFile(url)
		return fmt.Errorf("rows are encrypted with the master key %s, and there is none: put the %s of the backup's time at %s first, or set %s to the key of that time",
			strings.Join(ids, " and "), filepath.Base(path), path, server.MasterKeyName)
	}
	if missing := slices.DeleteFunc(slices.Clone(ids), keys.HasKey); len(missing) > 0 {
		return fmt.Errorf("rows are encrypted with the master key %s, which %s lacks: add the key of the backup's time behind the present one, with a comma between them",
			strings.Join(missing, " and "), source)
	}
	return nil
}

// restoreCmd is `stoa restore`. It opens the database directly; no server may use it meanwhile.
type restoreCmd struct {
	File         string `arg:"" placeholder:"FILE" help:"The backup."`
	databaseFlag `embed:""`
	Force        bool `help:"Replace the database if it exists."`
}

// Run replaces the database after it has checked that this program and the server's master keys can read the backup.
func (cmd *restoreCmd) Run(ctx context.Context, c *console) error {
	url, err := cmd.findFile("restore", "pg_restore as the login stoa_owner")
	if err != nil {
		return err
	}
	var schema migrations.Status
	check := func(ctx context.Context, copied string) error {
		err := readBackup(ctx, copied, func(status migrations.Status, keys []string) error {
			schema = status
			if status.Current > status.Latest {
				return fmt.Errorf("its schema is at %d, of a newer version of Stoa; this one knows %d: restore it with that version", status.Current, status.Latest)
			}
			return checkMasterKeys(url, keys)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", cmd.File, err)
		}
		return nil
	}
	if err := backup.Restore(ctx, url, cmd.File, backup.Options{Replace: cmd.Force, Check: check}); err != nil {
		return err
	}
	state := describeStatus(schema)
	switch {
	case schema.Dirty:
		state = fmt.Sprintf("migration %d of %d was cut off; the server runs it again when it starts", schema.Current, schema.Latest)
	case schema.Current < schema.Latest:
		state = fmt.Sprintf("the schema is at %d of %d; the server brings it up to date when it starts", schema.Current, schema.Latest)
	}
	c.printStatus("%s has the backup %s; %s", strings.TrimPrefix(url, "sqlite://"), cmd.File, state)
	c.printStatus("start the server: it continues the tasks that were at work at the time of the backup, also those that ended since")
	return nil
}
