// Package backup writes the platform's SQLite file to a backup while a server uses it, and restores it from one. It also
// records when the last backup of the database was made, on PostgreSQL by other tools.
package backup

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"

	_ "modernc.org/sqlite" // the driver

	"stoa/agentsvc/temporary"
	"stoa/tenancy/db"
)

// Write writes the state of the platform's SQLite file at databaseURL to a new file at path, which its owner alone may
// read. It reads in one transaction, on a connection of its own without the file's lock, so that another process may
// serve meanwhile; the write-ahead log of that process grows until it ends. The file at path does not exist before it is
// complete, checked and on the disk. It has no rows that were deleted before.
func Write(ctx context.Context, databaseURL, path string) error {
	source, err := sqlitePath(databaseURL)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s exists: a backup replaces no file, choose another name", path)
	}
	if _, err := os.Stat(source); errors.Is(err, fs.ErrNotExist) {
		return missingError(source)
	}
	if err := writeBackup(ctx, source, path); err != nil {
		return fmt.Errorf("back up %s: %w", source, err)
	}
	return nil
}

// missingError is the error for a database that is not at path.
func missingError(path string) error {
	return fmt.Errorf("the SQLite file %s does not exist: --database or STOA_DATABASE names the one of the server", path)
}

// writeBackup is Write of the file at source, which exists.
func writeBackup(ctx context.Context, source, path string) error {
	folder, part, err := createPart(path)
	if err != nil {
		return err
	}
	defer func() { _ = folder.Remove() }()
	from, err := openFile(source, "&mode=ro")
	if err != nil {
		return err
	}
	// VACUUM INTO fills a file that exists and is empty, so that the mode of part stays 0600.
	_, err = from.ExecContext(ctx, "VACUUM INTO $1", part)
	if err := errors.Join(err, from.Close()); err != nil {
		return err
	}
	if err := checkIntegrity(ctx, part); err != nil {
		return err
	}
	if err := syncPath(part); err != nil {
		return err
	}
	// Unlike a rename, a link never replaces a file. File systems without links (EPERM, ENOTSUP) get a rename.
	if err := os.Link(part, path); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: a backup replaces no file, choose another name", path)
	} else if err != nil {
		if err := os.Rename(part, path); err != nil {
			return err
		}
	}
	return syncPath(filepath.Dir(path))
}

// Options configure [Restore].
type Options struct {
	// Replace allows that the database exists.
	Replace bool
	// Check is called with the URL of a complete copy of the backup before it becomes the database. Its error ends the
	// restore without a change. It may be nil.
	Check func(ctx context.Context, databaseURL string) error
}

// Restore makes the backup at path, or a copy of a stopped server's file, the platform's SQLite file at databaseURL. No
// other process may use that file: Restore locks it. The database is the former one until the copy is complete, checked
// and on the disk.
func Restore(ctx context.Context, databaseURL, path string, o Options) error {
	target, err := sqlitePath(databaseURL)
	if err != nil {
		return err
	}
	if err := checkFileKind(path); err != nil {
		return err
	}
	// Before the lock, whose file would be root's too.
	if err := checkOwner(target); err != nil {
		return err
	}
	lock, err := db.LockFile(target)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	switch existing, err := os.Stat(target); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case isSameFile(path, existing):
		return fmt.Errorf("%s is the database itself, not a backup of it", path)
	case !o.Replace:
		return fmt.Errorf("the SQLite file %s exists: --force replaces it, and what it has that the backup has not is lost", target)
	default:
		// The file is replaced where a link leads to, as SQLite keeps the files next to it there.
		if target, err = filepath.EvalSymlinks(target); err != nil {
			return err
		}
	}
	return replaceFile(ctx, target, path, o.Check)
}

// checkOwner returns an error if this process is root's and the server's file is another user's. The server could not use
// a file of root, and giving it away in a folder of another user would let that user choose which file root gives away.
func checkOwner(target string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	existing, err := os.Stat(target)
	if errors.Is(err, fs.ErrNotExist) {
		existing, err = os.Stat(filepath.Dir(target))
	}
	if err != nil {
		return err
	}
	owner, ok := existing.Sys().(*syscall.Stat_t)
	if !ok || owner.Uid == 0 {
		return nil
	}
	name := fmt.Sprint(owner.Uid)
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	return fmt.Errorf("the SQLite file %s belongs to the user %s, who cannot use a file of root: restore as that user, as in runuser -u %s -- stoa restore FILE", target, name, name)
}

// sideFiles are what SQLite writes next to a file. A write-ahead log that stayed would be applied to the next file of the
// same name.
var sideFiles = []string{"-wal", "-shm", "-journal"}

// replaceFile puts a checked copy of the file at path in the place of target.
func replaceFile(ctx context.Context, target, path string, check func(context.Context, string) error) error {
	folder, part, err := createPart(target)
	if err != nil {
		return err
	}
	defer func() { _ = folder.Remove() }()
	if err := copyFile(ctx, path, part); err != nil {
		return err
	}
	// The copy of a server's file may come with its write-ahead log, which checkIntegrity merges.
	if err := copyFile(ctx, path+"-wal", part+"-wal"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := checkIntegrity(ctx, part); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if check != nil {
		if err := check(ctx, "sqlite://"+part); err != nil {
			return err
		}
	}
	if err := syncPath(part); err != nil {
		return err
	}
	// The former file is complete without its log from here on, in case this process ends before the rename. A damaged one
	// may be refused; then nothing is lost that could be read.
	if former, err := openFile(target, "&mode=rw"); err == nil {
		_ = errors.Join(mergeLog(ctx, former), former.Close())
	}
	for _, suffix := range sideFiles {
		if err := os.Remove(target + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := syncPath(filepath.Dir(target)); err != nil {
		return err
	}
	if err := os.Rename(part, target); err != nil {
		return err
	}
	return syncPath(filepath.Dir(target))
}

// sqlitePath returns the path of the file at databaseURL.
func sqlitePath(databaseURL string) (string, error) {
	path, ok := strings.CutPrefix(databaseURL, "sqlite://")
	if !ok || path == "" || path == ":memory:" {
		return "", errors.New("the database is no SQLite file")
	}
	return path, nil
}

// partInfix is between a file's name and a random number in the name of the folder of what will become the file.
const partInfix = ".part-"

// createPart creates a folder next to path, and in it an empty file for what becomes the file at path, and returns the
// folder, which the caller removes, and the file's absolute path. The file has the mode 0600. SQLite's files next to it are
// in the folder too. The folders that killed processes left of this path are removed, while those of others that are at work
// stay. The lock that decides this is the folder's: on network file systems a lock of the file itself would exclude SQLite.
func createPart(path string) (folder *temporary.Folder, part string, err error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, "", err
	}
	if _, err := os.Stat(filepath.Dir(absolute)); err != nil {
		return nil, "", err // names the folder, not the temporary one
	}
	if folder, err = temporary.CreateFolder(filepath.Dir(absolute), filepath.Base(absolute)+partInfix); err != nil {
		return nil, "", err
	}
	part = filepath.Join(folder.Path, filepath.Base(absolute))
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, "", errors.Join(err, folder.Remove())
	}
	return folder, part, nil
}

// openFile opens the SQLite file at path with one connection and further parameters of its URL, without taking the lock.
func openFile(path, parameters string) (*sql.DB, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	// Statements wait 5 s for locks, and have 8 MB of memory for pages.
	s, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: absolute}).String()+"?_pragma=busy_timeout(5000)&_pragma=cache_size(-8000)"+parameters)
	if err != nil {
		return nil, err
	}
	s.SetMaxOpenConns(1)
	return s, nil
}

// checkIntegrity reads the whole SQLite file at path, which no other process uses, and returns an error if it is damaged.
// It first merges a write-ahead log.
func checkIntegrity(ctx context.Context, path string) error {
	s, err := openFile(path, "")
	if err != nil {
		return err
	}
	result := ""
	err = mergeLog(ctx, s)
	if err == nil {
		err = s.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&result)
	}
	switch err := errors.Join(err, s.Close()); {
	case err != nil:
		return fmt.Errorf("the file is damaged or no database: %w", err)
	case result != "ok":
		return fmt.Errorf("the file is damaged: %s", result)
	}
	return nil
}

// mergeLog moves the write-ahead log into the file and removes it: the file alone is then the database.
func mergeLog(ctx context.Context, s *sql.DB) error {
	mode := ""
	return s.QueryRowContext(ctx, "PRAGMA journal_mode(DELETE)").Scan(&mode)
}

// checkFileKind returns an error if the file at path does not begin as a SQLite file does.
func checkFileKind(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	const sqliteStart, dumpStart = "SQLite format 3\x00", "PGDMP"
	start := make([]byte, len(sqliteStart))
	n, err := io.ReadFull(f, start)
	switch {
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return err
	case bytes.HasPrefix(start[:n], []byte(dumpStart)):
		return fmt.Errorf("%s is a dump of PostgreSQL: restore it with pg_restore, see docs/operations/backup.md", path)
	case string(start) != sqliteStart:
		return fmt.Errorf("%s is not a SQLite database", path)
	}
	return nil
}

// copyBlock is how much copyFile copies between two looks at its context.
const copyBlock = 64 << 20

// copyFile copies the content of the file at from to the file at to, which gets the mode 0600 if it does not exist.
func copyFile(ctx context.Context, from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	for err == nil {
		if err = ctx.Err(); err == nil {
			_, err = io.CopyN(out, in, copyBlock)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, out.Close())
}

// syncPath waits until the content of a file, or the entries of a folder, are on the disk.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// isSameFile reports whether path leads to the file that info describes.
func isSameFile(path string, info fs.FileInfo) bool {
	other, err := os.Stat(path)
	return err == nil && os.SameFile(other, info)
}
