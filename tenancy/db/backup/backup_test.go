package backup_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/temporary"
	"stoa/tenancy/db"
	"stoa/tenancy/db/backup"
	"stoa/tenancy/db/dbtest"
)

// accounts is a SQLite file with two rows whose amounts sum to 100 between transactions.
type accounts struct {
	file string
	*db.DB
}

// openAccounts opens the file, and creates its table if that is missing.
func openAccounts(t *testing.T, file string) accounts {
	t.Helper()
	d, err := db.Open(t.Context(), "sqlite://"+file, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	a := accounts{file, d}
	a.exec(t, `CREATE TABLE IF NOT EXISTS account (id TEXT PRIMARY KEY, amount BIGINT NOT NULL, filler TEXT NOT NULL)`)
	a.exec(t, `INSERT INTO account (id, amount, filler) VALUES ('a', 100, ''), ('b', 0, '') ON CONFLICT DO NOTHING`)
	return a
}

func (a accounts) url() string { return "sqlite://" + a.file }

func (a accounts) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	var b db.Batch
	b.Exec(nil, sql, args...)
	if err := a.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// move moves amount from a to b, as two statements of one transaction.
func (a accounts) move(ctx context.Context, amount int64) error {
	var b db.Batch
	b.Exec(nil, `UPDATE account SET amount = amount - $1 WHERE id = 'a'`, amount)
	b.Exec(nil, `UPDATE account SET amount = amount + $1, filler = hex(randomblob(500)) WHERE id = 'b'`, amount)
	return a.Platform().Write(ctx, &b)
}

// amounts returns the amounts of a and b.
func (a accounts) amounts(t *testing.T) [2]int64 {
	t.Helper()
	var read []int64
	var b db.Batch
	b.Query(func(r db.Row) error {
		var n int64
		err := r.Scan(&n)
		read = append(read, n)
		return err
	}, `SELECT amount FROM account WHERE id IN ('a', 'b') ORDER BY id`)
	if err := a.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return [2]int64{read[0], read[1]}
}

// amountsOf returns the amounts in a file that nothing has open.
func amountsOf(t *testing.T, file string) [2]int64 {
	t.Helper()
	a := openAccounts(t, file)
	defer func() { _ = a.Close() }()
	return a.amounts(t)
}

// listFolder returns the names in a folder, without that of locks.
func listFolder(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".lock") {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestWriteWhileUsed takes backups while another connection writes: each has one state between two transactions, with
// everything that was written before it began, and no later one has less.
func TestWriteWhileUsed(t *testing.T) {
	t.Parallel()
	a := openAccounts(t, filepath.Join(t.TempDir(), "stoa.db"))
	for range 200 { // so that a backup takes some time
		a.exec(t, `INSERT INTO account (id, amount, filler) SELECT hex(randomblob(16)), 0, hex(randomblob(4000))`)
	}
	ctx, cancel := context.WithCancel(t.Context())
	written, ended := atomic.Int64{}, make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := a.move(context.WithoutCancel(ctx), 1); err != nil {
				ended <- err
				return
			}
			written.Add(1)
		}
		ended <- nil
	}()
	folder, last := t.TempDir(), int64(0)
	for _, name := range []string{"1", "2", "3", "4", "5"} {
		before := written.Load()
		file := filepath.Join(folder, name)
		if err := backup.Write(t.Context(), a.url(), file); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("the backup has the mode %v (%v)", info.Mode(), err)
		}
		got := amountsOf(t, file)
		if got[0]+got[1] != 100 || got[1] < before || got[1] < last {
			t.Errorf("the backup has %v, at least %d were written before", got, max(before, last))
		}
		last = got[1]
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestWriteKilled kills backups at moments of all their steps: afterwards there is no file of their name or the complete
// one, and the next backup of the name removes what the killed ones left.
func TestWriteKilled(t *testing.T) {
	// Not in parallel: a program that is being started has the locks of other tests for a moment.
	a := openAccounts(t, filepath.Join(t.TempDir(), "stoa.db"))
	for range 100 { // so that a backup takes some time
		a.exec(t, `INSERT INTO account (id, amount, filler) SELECT hex(randomblob(16)), 0, hex(randomblob(20000))`)
	}
	if err := a.move(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	kept := filepath.Join(folder, "kept")
	run := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0], a.url())
		cmd.Env = append(os.Environ(), writeVariable+"="+kept)
		return cmd
	}
	began := time.Now()
	if out, err := run().CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	took := time.Since(began)

	const kills = 20
	complete, left := 0, 0
	for i := range kills {
		if err := removeIfThere(kept); err != nil {
			t.Fatal(err)
		}
		cmd := run()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(took*time.Duration(i+1)/kills, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
		names := listFolder(t, folder)
		if slices.Contains(names, "kept") {
			complete++
			if got := amountsOf(t, kept); got != [2]int64{93, 7} {
				t.Errorf("after kill %d the backup has %v", i+1, got)
			}
		}
		if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "kept.part-") }) {
			left++
		}
	}
	t.Logf("%d kills within %v: %d backups are complete, after %d kills something was left", kills, took, complete, left)
	if left == 0 {
		t.Error("no kill left anything: the test checks nothing")
	}
	if err := errors.Join(removeIfThere(kept), removeIfThere(kept+"-wal"), removeIfThere(kept+"-shm")); err != nil {
		t.Fatal(err)
	}
	if err := backup.Write(t.Context(), a.url(), kept); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"kept"}, listFolder(t, folder)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// TestWriteAmongOthers checks that a backup leaves alone what another process is writing under the same name, and what
// belongs to other names.
func TestWriteAmongOthers(t *testing.T) {
	// Not in parallel: see TestWriteKilled.
	a := openAccounts(t, filepath.Join(t.TempDir(), "stoa.db"))
	folder := t.TempDir()
	dead := filepath.Join(folder, "kept.part-1")
	for _, path := range []string{dead, filepath.Join(folder, "other.part-1")} {
		if err := errors.Join(os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, "kept"), []byte("half"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	working, err := temporary.CreateFolder(folder, "kept.part-")
	if err != nil {
		t.Fatal(err)
	}
	// CreateFolder has removed the first one.
	if err := os.Mkdir(dead, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(working.Path, "kept"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := backup.Write(t.Context(), a.url(), filepath.Join(folder, "kept")); err != nil {
		t.Fatal(err)
	}
	want := []string{"kept", filepath.Base(working.Path), "other.part-1"}
	if diff := cmp.Diff(want, listFolder(t, folder)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if text, err := os.ReadFile(filepath.Join(working.Path, "kept")); err != nil || string(text) != "half" {
		t.Errorf("what another process writes is %q (%v)", text, err)
	}
	if err := working.Remove(); err != nil {
		t.Error(err)
	}
}

// TestWriteRefuses checks that a backup that cannot be made leaves nothing and changes nothing.
func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	a := openAccounts(t, filepath.Join(folder, "stoa.db"))
	taken, link := filepath.Join(folder, "taken"), filepath.Join(folder, "link")
	if err := os.WriteFile(taken, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(folder, "elsewhere"), link); err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(folder, "damaged.db")
	damageFile(t, a, damaged)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	want := listFolder(t, folder)
	tests := []struct {
		name string
		ctx  context.Context
		url  string
		path string
		want string
	}{
		{"a file exists", t.Context(), a.url(), taken, "taken exists: a backup replaces no file"},
		{"a link exists", t.Context(), a.url(), link, "link exists: a backup replaces no file"},
		{"no folder", t.Context(), a.url(), filepath.Join(folder, "none", "x"), "none: no such file or directory"},
		{"no database", t.Context(), "sqlite://" + filepath.Join(folder, "none.db"), filepath.Join(folder, "x"), "none.db does not exist"},
		{"damaged", t.Context(), "sqlite://" + damaged, filepath.Join(folder, "x"), "malformed"},
		{"interrupted", ended, a.url(), filepath.Join(folder, "x"), "context canceled"},
		{"PostgreSQL", t.Context(), "postgres://db/stoa", filepath.Join(folder, "x"), "no SQLite file"},
		{"in memory", t.Context(), "sqlite://:memory:", filepath.Join(folder, "x"), "no SQLite file"},
	}
	for _, tt := range tests {
		if err := backup.Write(tt.ctx, tt.url, tt.path); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
	}
	got := slices.DeleteFunc(listFolder(t, folder), func(name string) bool { return strings.HasPrefix(name, "damaged.db-") })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if text, err := os.ReadFile(taken); err != nil || string(text) != "mine" {
		t.Errorf("the existing file has %q (%v)", text, err)
	}
}

// damageFile writes a backup of a with bytes of zero in its middle to the file at path.
func damageFile(t *testing.T, a accounts, path string) {
	t.Helper()
	for range 50 {
		a.exec(t, `INSERT INTO account (id, amount, filler) SELECT hex(randomblob(16)), 0, hex(randomblob(2000))`)
	}
	if err := backup.Write(t.Context(), a.url(), path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear(data[len(data)/4 : len(data)/2])
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRestore restores backups in place of nothing, of a file and of a link, with a write-ahead log next to the former file
// and next to the backup.
func TestRestore(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	a := openAccounts(t, filepath.Join(folder, "stoa.db"))
	kept := filepath.Join(folder, "backup")
	if err := a.move(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	if err := backup.Write(t.Context(), a.url(), kept); err != nil {
		t.Fatal(err)
	}
	if err := a.move(t.Context(), 20); err != nil {
		t.Fatal(err)
	}
	// As a killed server leaves it: with commits that are in the write-ahead log alone.
	copied := filepath.Join(folder, "copied")
	copyFiles(t, a.file, copied)

	fresh := filepath.Join(t.TempDir(), "stoa.db")
	killed := filepath.Join(t.TempDir(), "stoa.db")
	copyFiles(t, a.file, killed)
	replaced, linked := filepath.Join(t.TempDir(), "real.db"), filepath.Join(t.TempDir(), "stoa.db")
	copyFiles(t, a.file, replaced)
	if err := os.Symlink(replaced, linked); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, from, target string
		replace            bool
		want               [2]int64
		files              []string
	}{
		{"nothing there", kept, fresh, false, [2]int64{93, 7}, []string{"stoa.db"}},
		{"over a killed server's file", kept, killed, true, [2]int64{93, 7}, []string{"stoa.db"}},
		{"a file with its write-ahead log", copied, killed, true, [2]int64{73, 27}, []string{"stoa.db"}},
		{"over a link", kept, linked, true, [2]int64{93, 7}, []string{"stoa.db"}},
	}
	for _, tt := range tests {
		if err := backup.Restore(t.Context(), "sqlite://"+tt.target, tt.from, backup.Options{Replace: tt.replace}); err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if diff := cmp.Diff(tt.files, listFolder(t, filepath.Dir(tt.target))); diff != "" {
			t.Errorf("%s: files (-want +got):\n%s", tt.name, diff)
		}
		if info, err := os.Stat(tt.target); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: the mode is %v (%v)", tt.name, info.Mode(), err)
		}
		if got := amountsOf(t, tt.target); got != tt.want {
			t.Errorf("%s: the file has %v, want %v", tt.name, got, tt.want)
		}
	}
	if info, err := os.Lstat(linked); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v (%v)", info.Mode(), err)
	}
	if got := a.amounts(t); got != [2]int64{73, 27} {
		t.Errorf("the source has %v", got)
	}
}

// copyFiles copies a SQLite file with its write-ahead log, as it is.
func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(from + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if suffix == "-wal" && len(data) == 0 {
			t.Fatal("the write-ahead log is empty: the test checks nothing")
		}
		if err := os.WriteFile(to+suffix, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRestoreKilled kills restores at moments of all their steps: afterwards the database is the former one with every
// commit, also those in its write-ahead log, or the restored one, and the next restore removes what the killed ones left.
func TestRestoreKilled(t *testing.T) {
	// Not in parallel: a program that is being started has the locks of other tests for a moment.
	folder := t.TempDir()
	a := openAccounts(t, filepath.Join(t.TempDir(), "stoa.db"))
	for range 100 { // so that a restore takes some time
		a.exec(t, `INSERT INTO account (id, amount, filler) SELECT hex(randomblob(16)), 0, hex(randomblob(20000))`)
	}
	kept := filepath.Join(folder, "backup")
	if err := errors.Join(a.move(t.Context(), 7), backup.Write(t.Context(), a.url(), kept), a.move(t.Context(), 20)); err != nil {
		t.Fatal(err)
	}
	former := filepath.Join(folder, "former.db")
	copyFiles(t, a.file, former)
	run := func(target string) *exec.Cmd {
		cmd := exec.Command(os.Args[0], "sqlite://"+target)
		cmd.Env = append(os.Environ(), helperVariable+"="+kept)
		return cmd
	}
	target := filepath.Join(t.TempDir(), "stoa.db")
	copyFiles(t, former, target)
	began := time.Now()
	if out, err := run(target).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	took := time.Since(began)

	const kills = 40
	outcomes, left := map[[2]int64]int{}, 0
	for i := range kills {
		if err := errors.Join(os.Remove(target), removeIfThere(target+"-wal"), removeIfThere(target+"-shm")); err != nil {
			t.Fatal(err)
		}
		copyFiles(t, former, target)
		cmd := run(target)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// The moments are spread over the time of one restore; the kernel ends the process in the middle of anything.
		timer := time.AfterFunc(took*time.Duration(i+1)/kills, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
		left = max(left, len(listFolder(t, filepath.Dir(target)))-1)
		outcomes[amountsOf(t, target)]++
	}
	t.Logf("%d kills within %v: %v, at most %d other files left", kills, took, outcomes, left)
	if n := outcomes[[2]int64{73, 27}] + outcomes[[2]int64{93, 7}]; n != kills || outcomes[[2]int64{73, 27}] == 0 {
		t.Errorf("after %d kills the database has %v, want [73 27] or [93 7]", kills, outcomes)
	}
	if out, err := run(target).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if diff := cmp.Diff([]string{"stoa.db"}, listFolder(t, filepath.Dir(target))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// removeIfThere removes a file, which need not exist.
func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// TestRestoreRefuses checks that a restore that is refused, or fails, changes nothing.
func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	source := openAccounts(t, filepath.Join(t.TempDir(), "stoa.db"))
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kept, damaged := filepath.Join(folder, "backup"), filepath.Join(folder, "damaged")
	if err := backup.Write(t.Context(), source.url(), kept); err != nil {
		t.Fatal(err)
	}
	damageFile(t, source, damaged)
	whole, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	short := write("short", string(whole[:len(whole)-5000]))

	server := openAccounts(t, filepath.Join(folder, "served.db"))
	stopped := openAccounts(t, filepath.Join(folder, "stopped.db"))
	if err := errors.Join(stopped.move(t.Context(), 3), stopped.Close()); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	want := listFolder(t, folder)
	all := backup.Options{Replace: true}
	tests := []struct {
		name    string
		ctx     context.Context
		url     string
		path    string
		options backup.Options
		want    string
	}{
		{"served", t.Context(), server.url(), kept, all, "served.db is in use by another process: stop it"},
		{"exists", t.Context(), stopped.url(), kept, backup.Options{}, "stopped.db exists: --force replaces it"},
		{"itself", t.Context(), stopped.url(), stopped.file, all, "is the database itself"},
		{"damaged", t.Context(), stopped.url(), damaged, all, "damaged: the file is damaged"},
		{"cut off", t.Context(), stopped.url(), short, all, "short: the file is damaged"},
		{"text", t.Context(), stopped.url(), write("text", "This is no database."), all, "text is not a SQLite database"},
		{"empty", t.Context(), stopped.url(), write("empty", ""), all, "empty is not a SQLite database"},
		{"a dump", t.Context(), stopped.url(), write("dump", "PGDMP"), all, "dump is a dump of PostgreSQL: restore it with pg_restore"},
		{"missing", t.Context(), stopped.url(), filepath.Join(folder, "none"), all, "none: no such file"},
		{"refused by the caller", t.Context(), stopped.url(), kept, backup.Options{Replace: true, Check: func(_ context.Context, url string) error {
			if got := amountsOf(t, strings.TrimPrefix(url, "sqlite://")); got != [2]int64{100, 0} {
				t.Errorf("the copy has %v", got)
			}
			return errors.New("not this one")
		}}, "not this one"},
		{"interrupted", ended, stopped.url(), kept, all, "context canceled"},
		{"no folder", t.Context(), "sqlite://" + filepath.Join(folder, "none", "stoa.db"), kept, all, "none: no such file or directory"},
		{"PostgreSQL", t.Context(), "postgres://db/stoa", kept, all, "no SQLite file"},
	}
	want = append(want, "dump", "empty", "text")
	slices.Sort(want)
	for _, tt := range tests {
		if err := backup.Restore(tt.ctx, tt.url, tt.path, tt.options); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
	}
	if diff := cmp.Diff(want, listFolder(t, folder)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if got := amountsOf(t, stopped.file); got != [2]int64{97, 3} {
		t.Errorf("the former database has %v", got)
	}
}

// skipUnlessRoot skips a test of what only root can do wrong.
func skipUnlessRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		dbtest.SkipLoudly(t, "only root can give files to other users")
	}
}

// TestRestoreOtherUser checks that root does not restore into a folder or over a file of another user.
func TestRestoreOtherUser(t *testing.T) {
	t.Parallel()
	skipUnlessRoot(t)
	a := openAccounts(t, filepath.Join(t.TempDir(), "stoa.db"))
	folder := t.TempDir()
	kept := filepath.Join(t.TempDir(), "backup")
	if err := backup.Write(t.Context(), a.url(), kept); err != nil {
		t.Fatal(err)
	}
	const other = 12345
	if err := os.Chown(folder, other, other); err != nil {
		t.Fatal(err)
	}
	err := backup.Restore(t.Context(), "sqlite://"+filepath.Join(folder, "stoa.db"), kept, backup.Options{})
	if err == nil || !strings.Contains(err.Error(), "belongs to the user 12345, who cannot use a file of root: restore as that user, as in runuser -u 12345 -- stoa restore FILE") {
		t.Errorf("got %v", err)
	}
	if names, err := os.ReadDir(folder); err != nil || len(names) > 0 {
		t.Errorf("the folder has %v (%v)", names, err)
	}
}

// TestFullDisk writes a backup to a disk that is too small, and restores one on such a disk: no part of it stays, and the
// former database is as before.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	small := t.TempDir()
	if err := syscall.Mount("stoa", small, "tmpfs", 0, "size=512k"); err != nil {
		dbtest.SkipLoudly(t, fmt.Sprintf("a small disk cannot be mounted here: %v", err))
	}
	t.Cleanup(func() { _ = syscall.Unmount(small, syscall.MNT_DETACH) })
	a := openAccounts(t, filepath.Join(t.TempDir(), "stoa.db"))
	for range 100 {
		a.exec(t, `INSERT INTO account (id, amount, filler) SELECT hex(randomblob(16)), 0, hex(randomblob(10000))`)
	}
	kept := filepath.Join(t.TempDir(), "backup")
	if err := backup.Write(t.Context(), a.url(), kept); err != nil {
		t.Fatal(err)
	}
	former := openAccounts(t, filepath.Join(small, "stoa.db"))
	if err := errors.Join(former.move(t.Context(), 3), former.Close()); err != nil {
		t.Fatal(err)
	}
	if err := backup.Write(t.Context(), a.url(), filepath.Join(small, "backup")); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("the backup: %v", err)
	}
	if err := backup.Restore(t.Context(), former.url(), kept, backup.Options{Replace: true}); err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("the restore: %v", err)
	}
	if diff := cmp.Diff([]string{"stoa.db"}, listFolder(t, small)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if got := amountsOf(t, former.file); got != [2]int64{97, 3} {
		t.Errorf("the former database has %v", got)
	}
}

// TestWriteAsRoot checks that a backup by root of another user's database leaves no file of root next to it, which the
// server could not open.
func TestWriteAsRoot(t *testing.T) {
	t.Parallel()
	skipUnlessRoot(t)
	folder := t.TempDir()
	a := openAccounts(t, filepath.Join(folder, "stoa.db"))
	if err := errors.Join(a.Close(), os.Remove(a.file+".lock")); err != nil {
		t.Fatal(err)
	}
	const other = 12345
	if err := errors.Join(os.Chown(folder, other, other), os.Chown(a.file, other, other)); err != nil {
		t.Fatal(err)
	}
	if err := backup.Write(t.Context(), a.url(), filepath.Join(t.TempDir(), "backup")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if owner := info.Sys().(*syscall.Stat_t).Uid; owner != other {
			t.Errorf("%s belongs to %d", e.Name(), owner)
		}
	}
}

// TestLastTime checks that the time of a backup is read where it was recorded, and that a later record replaces it.
func TestLastTime(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		if at, err := backup.ReadTime(t.Context(), d); err != nil || !at.IsZero() {
			t.Errorf("before the first backup: %v (%v)", at, err)
		}
		for _, unix := range []int64{1_790_000_000, 1_780_000_000, 1_790_000_001} {
			want := time.Unix(unix, 0)
			if err := backup.RecordTime(t.Context(), d.URL(), want); err != nil {
				t.Fatal(err)
			}
			if at, err := backup.ReadTime(t.Context(), d); err != nil || !at.Equal(want) {
				t.Errorf("the last backup is of %v, want %v (%v)", at, want, err)
			}
		}
	})
}

// TestLastTimeFile checks that the file with the time of a backup is found for a link to the database as well, that it
// replaces another user's, and that the file of a former attempt does not remain.
func TestLastTimeFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := openAccounts(t, filepath.Join(dir, "stoa.db"))
	link := filepath.Join(t.TempDir(), "linked.db")
	if err := os.Symlink(a.file, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.file+".last-backup", nil, 0o400); err != nil { // of another user, or of touch
		t.Fatal(err)
	}
	want := time.Unix(1_790_000_000, 0)
	if err := backup.RecordTime(t.Context(), "sqlite://"+link, want); err != nil {
		t.Fatal(err)
	}
	if at, err := backup.ReadTime(t.Context(), a.DB); err != nil || !at.Equal(want) {
		t.Errorf("the last backup is of %v, want %v (%v)", at, want, err)
	}
	got := slices.DeleteFunc(listFolder(t, dir), func(name string) bool { return strings.HasSuffix(name, "-wal") || strings.HasSuffix(name, "-shm") })
	if !slices.Equal(got, []string{"stoa.db", "stoa.db.last-backup"}) {
		t.Errorf("the folder has %v", got)
	}
	for _, url := range []string{"sqlite://:memory:", "sqlite://" + filepath.Join(dir, "missing.db")} {
		if err := backup.RecordTime(t.Context(), url, want); err == nil {
			t.Errorf("a backup of %s is recorded", url)
		}
	}
}
