package configfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestReplace checks that a file is replaced as a whole, with its mode and behind its link, and that a failure leaves it and
// its folder as they were.
func TestReplace(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path, link := filepath.Join(folder, "stoa.yaml"), filepath.Join(t.TempDir(), "link.yaml")
	if err := errors.Join(os.WriteFile(path, []byte("old"), 0o640), os.Symlink(path, link)); err != nil {
		t.Fatal(err)
	}
	if err := Replace(link, []byte("new")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	info, statErr := os.Lstat(link)
	if err != nil || statErr != nil || string(text) != "new" || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("%v %v %q %v", err, statErr, text, info.Mode())
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v %v", err, info.Mode())
	}
	// A folder cannot be replaced by a file: the rename fails last, after the text was written.
	if err := os.Mkdir(filepath.Join(folder, "stoa.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Replace(filepath.Join(folder, "stoa.d"), []byte("new")); err == nil {
		t.Error("a folder was replaced")
	}
	if err := Replace(filepath.Join(folder, "nosuch.yaml"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 2 {
		t.Errorf("%v: the folder has %v", err, entries)
	}
}
