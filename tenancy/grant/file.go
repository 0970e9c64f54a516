package grant

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// besides are what SQLite, and the lock on its file, put behind a file's name.
var besides = []string{"", "-wal", "-shm", "-journal", ".lock"}

// CheckDatabase refuses a SQLite file that need not be the app's alone; see [Guard.DatabaseFolder].
func (g *Guard) CheckDatabase(p Place) error {
	folder, err := g.DatabaseFolder(p)
	if err != nil {
		return err
	}
	return folder.Close()
}

// DatabaseFolder opens the folder of a SQLite file and refuses a file that need not be the app's alone: neither its path below
// the root nor any of its files may be a symbolic link. A file with several names is refused because the others may lie in
// another app's folder, or be the platform's database: they cannot be found from here, and a database has no need of them. A file that
// does not exist yet is none of these. Whatever takes the folder's place in its path later, the returned file is still the folder
// that was looked at.
func (g *Guard) DatabaseFolder(p Place) (_ *os.File, err error) {
	root, err := Place{Root: p.Root, Path: filepath.Dir(p.Path)}.Folder()
	if err != nil {
		return nil, errors.New("its folder is not there")
	}
	defer func() { _ = root.Close() }()
	folder, err := root.Open(".")
	if err != nil {
		return nil, errors.New("its folder cannot be read")
	}
	defer func() {
		if err != nil {
			_ = folder.Close()
		}
	}()
	at, err := pathOf(folder, filepath.Dir(p.Name()))
	if err != nil {
		return nil, errors.New("its folder is not there")
	}
	if at != filepath.Dir(p.Name()) {
		return nil, errors.New("a symbolic link stands in its path below the folder that was granted")
	}
	for _, suffix := range besides {
		name := filepath.Base(p.Path) + suffix
		info, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := g.checkFile(name, info); err != nil {
			return nil, err
		}
	}
	return folder, nil
}

// checkFile refuses a file that is none, has several names or is the server's.
func (g *Guard) checkFile(name string, info fs.FileInfo) error {
	at, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is a link, a folder or a device: a database is a file", name)
	case ok && at.Nlink > 1:
		return fmt.Errorf("%s has several names (hard links), of which others may be somebody else's", name)
	case g.isPrivate(info):
		return fmt.Errorf("%s belongs to this server", name)
	}
	return nil
}

// pathOf returns where an open folder lies, without symbolic links. On Linux the kernel says it; elsewhere it is what the path
// leads to now.
func pathOf(folder *os.File, path string) (string, error) {
	if runtime.GOOS == "linux" {
		return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", folder.Fd()))
	}
	return filepath.EvalSymlinks(path)
}

// isPrivate reports whether a file is one of the server's own, or lies in one of its folders, by whatever name: its device
// and number count.
func (g *Guard) isPrivate(info fs.FileInfo) bool {
	if g == nil {
		return false
	}
	for _, path := range g.private {
		own, err := os.Stat(path)
		if err != nil {
			continue
		}
		if os.SameFile(own, info) {
			return true
		}
		entries, _ := os.ReadDir(path) // none where it is a file
		for _, e := range entries {
			if own, err := os.Stat(filepath.Join(path, e.Name())); err == nil && os.SameFile(own, info) {
				return true
			}
		}
	}
	return false
}
