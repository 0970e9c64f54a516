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

// sqliteSuffixes are what SQLite, and the lock on its file, put behind a file's name.
var sqliteSuffixes = []string{"", "-wal", "-shm", "-journal", ".lock"}

// CheckDatabase refuses a SQLite file that need not be the app's alone; see [Guard.OpenDatabaseFolder].
func (g *Guard) CheckDatabase(p RootedPath) error {
	folder, err := g.OpenDatabaseFolder(p)
	if err != nil {
		return err
	}
	return folder.Close()
}

// OpenDatabaseFolder opens the folder of a SQLite file and refuses a file that need not be the app's alone: neither its path below
// the root nor any of its files may be a symbolic link. A file with several names is refused because the others may lie in
// another app's folder, or be the platform's database: they cannot be found from here, and a database has no need of them. A file that
// does not exist yet is none of these. Whatever takes the folder's place in its path later, the returned file is still the folder
// that was looked at.
func (g *Guard) OpenDatabaseFolder(p RootedPath) (_ *os.File, err error) {
	root, err := RootedPath{Root: p.Root, Path: filepath.Dir(p.Path)}.OpenFolder()
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
	at, err := folderPath(folder, filepath.Dir(p.FullPath()))
	if err != nil {
		return nil, errors.New("its folder is not there")
	}
	if at != filepath.Dir(p.FullPath()) {
		return nil, errors.New("a symbolic link stands in its path below the folder that was granted")
	}
	for _, suffix := range sqliteSuffixes {
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
	case g.isServerFile(info):
		return fmt.Errorf("%s belongs to this server", name)
	}
	return nil
}

// folderPath returns where an open folder lies, without symbolic links. On Linux the kernel says it; elsewhere it is what the path
// leads to now.
func folderPath(folder *os.File, path string) (string, error) {
	if runtime.GOOS == "linux" {
		return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", folder.Fd()))
	}
	return filepath.EvalSymlinks(path)
}

// isServerFile reports whether a file is one of the server's own, or lies in one of its folders, by whatever name: its device
// and number count.
func (g *Guard) isServerFile(info fs.FileInfo) bool {
	if g == nil {
		return false
	}
	for _, path := range g.serverPaths {
		serverInfo, err := os.Stat(path)
		if err != nil {
			continue
		}
		if os.SameFile(serverInfo, info) {
			return true
		}
		entries, _ := os.ReadDir(path) // none where it is a file
		for _, e := range entries {
			if serverInfo, err := os.Stat(filepath.Join(path, e.Name())); err == nil && os.SameFile(serverInfo, info) {
				return true
			}
		}
	}
	return false
}
