package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"stoa/agentsvc/temporary"
	"stoa/tenancy/db"
)

// lastSuffix is behind the name of the SQLite file in that of the file whose modification time is that of the last
// backup. It is next to the database, so that a server finds it without a setting, and a time without content, so that who
// saves the database in another way can record that with touch(1).
const lastSuffix = ".last-backup"

// lastPath returns the path of the file that has the time of the last backup of the platform's SQLite file at databaseURL.
func lastPath(databaseURL string) (string, error) {
	path, err := sqlitePath(databaseURL)
	if err != nil {
		return "", err
	}
	found, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", missingError(path)
	}
	if err != nil {
		return "", err
	}
	return found + lastSuffix, nil
}

// lastSetting is the row of the table setting that has the time of the last backup on PostgreSQL, which Stoa does not make
// itself.
const lastSetting = "last_backup"

// RecordTime records that a backup of the platform's database at databaseURL is complete, which was begun at a time. The
// login of PostgreSQL must be one that may act under the role of the platform.
func RecordTime(ctx context.Context, databaseURL string, begun time.Time) error {
	if strings.HasPrefix(databaseURL, "sqlite://") {
		return recordFileTime(databaseURL, begun)
	}
	d, err := db.Open(ctx, databaseURL, db.Options{MaxConns: 1})
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	var b db.Batch
	b.Exec(nil, `INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, lastSetting, begun.UTC().Format(time.RFC3339))
	if err := d.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("record the time of the backup: %w", err)
	}
	return nil
}

// recordFileTime is [RecordTime] of a SQLite file. It replaces the file of the former one, which may be another user's.
func recordFileTime(databaseURL string, begun time.Time) error {
	path, err := lastPath(databaseURL)
	if err != nil {
		return err
	}
	f, err := temporary.CreateFile(filepath.Dir(path), filepath.Base(path)+".new-")
	if err != nil {
		return err
	}
	err = os.Chtimes(f.Name(), begun, begun)
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return errors.Join(err, f.Close())
}

// ReadTime returns when the last complete backup of the platform's database was begun, zero if none is recorded.
func ReadTime(ctx context.Context, d *db.DB) (at time.Time, err error) {
	if d.Engine() == db.SQLite {
		return readFileTime(d.URL())
	}
	var b db.Batch
	b.Query(func(r db.Row) error {
		text := ""
		if err := r.Scan(&text); err != nil {
			return err
		}
		var err error
		at, err = time.Parse(time.RFC3339, text)
		return err
	}, `SELECT value FROM setting WHERE name = $1`, lastSetting)
	if err := d.Platform().Do(ctx, &b); err != nil {
		return time.Time{}, fmt.Errorf("read the time of the last backup: %w", err)
	}
	return at, nil
}

// readFileTime is [ReadTime] of a SQLite file.
func readFileTime(databaseURL string) (time.Time, error) {
	path, err := lastPath(databaseURL)
	if err != nil {
		return time.Time{}, err
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}
