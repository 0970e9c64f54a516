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

// sqliteSuffixes are the suffixes of a database's files: those of SQLite and of the lock file of package db.
var sqliteSuffixes = []string{"", "-wal", "-shm", "-journal", ".lock"}

// CheckDatabase refuses a SQLite file that may not belong to the app alone; see [Guard.OpenDatabaseFolder].
func (g *Guard) CheckDatabase(p RootedPath) error {
	folder, err := g.OpenDatabaseFolder(p)
	if err != nil {
		return err
	}
	return folder.Close()
}

// OpenDatabaseFolder opens the folder of a SQLite file and refuses a file that may not belong to the app alone. Neither
// the path below the root nor a file of the database may be a symbolic link. A file with several names (hard links) is
// refused, because the others may lie in another app's folder or be the platform's database: they cannot be found from
// here. A file that does not exist yet is accepted. The returned folder is the one that was checked, even if its path
// leads elsewhere later.
func (g *Guard) OpenDatabaseFolder(p RootedPath) (_ *os.File, err error) {
	root, err := RootedPath{Root: p.Root, Path: filepath.Dir(p.Path)}.OpenFolder()
	if err != nil {
		return nil, errors.New("its folder does not exist")
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
		return nil, errors.New("its folder does not exist")
	}
	if at != filepath.Dir(p.FullPath()) {
		return nil, errors.New("its path has a symbolic link below the granted folder")
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

// checkFile refuses a file that is not a regular one, has several names, or belongs to the server.
func (g *Guard) checkFile(name string, info fs.FileInfo) error {
	at, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is a link, a folder or a device: a database is a file", name)
	case ok && at.Nlink > 1:
		return fmt.Errorf("%s has several names (hard links), and another app may own one of them", name)
	case g.isServerFile(info):
		return fmt.Errorf("%s belongs to this server", name)
	}
	return nil
}

// folderPath returns the path of an open folder without symbolic links. On Linux the kernel provides it; elsewhere it
// is where path leads now.
func folderPath(folder *os.File, path string) (string, error) {
	if runtime.GOOS == "linux" {
		return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", folder.Fd()))
	}
	return filepath.EvalSymlinks(path)
}

// isServerFile reports whether a file is one of the server's own or lies directly in one of its folders, under any
// name: device and inode are compared.
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
		entries, _ := os.ReadDir(path) // no entries if path is a file
		for _, e := range entries {
			if serverInfo, err := os.Stat(filepath.Join(path, e.Name())); err == nil && os.SameFile(serverInfo, info) {
				return true
			}
		}
	}
	return false
}
