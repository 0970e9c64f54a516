package db

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
)

// pinnedFolder is a folder that stays open, so that the names of files in it refer to this folder even if its path is
// replaced by another folder or a link. All users of one folder share one pinnedFolder: SQLite identifies the shared
// memory of a file by the file's name, and removes it with the last connection of that name.
type pinnedFolder struct {
	dir  *os.File
	info fs.FileInfo
	// users is guarded by pinnedFolders.mu.
	users int
}

// pinnedFolders lists the folders in use.
var pinnedFolders struct {
	mu      sync.Mutex
	folders []*pinnedFolder
}

// pinFolder returns the pinnedFolder of dir and adds a user. It takes ownership of dir, also on errors.
func pinFolder(dir *os.File) (*pinnedFolder, error) {
	info, err := dir.Stat()
	if err != nil {
		_ = dir.Close()
		return nil, err
	}
	pinnedFolders.mu.Lock()
	defer pinnedFolders.mu.Unlock()
	for _, f := range pinnedFolders.folders {
		if os.SameFile(f.info, info) {
			f.users++
			return f, dir.Close()
		}
	}
	f := &pinnedFolder{dir: dir, info: info, users: 1}
	pinnedFolders.folders = append(pinnedFolders.folders, f)
	return f, nil
}

// filePath returns a path of the named file in the folder. On Linux it leads through the open descriptor; elsewhere it
// is an ordinary path, and a replaced folder is detected by checkFolder only.
func (f *pinnedFolder) filePath(name string) string {
	if runtime.GOOS == "linux" {
		return fmt.Sprintf("/proc/self/fd/%d/%s", f.dir.Fd(), name)
	}
	return filepath.Join(f.dir.Name(), name)
}

// isSameFolder reports whether dir is the same folder, by device and inode.
func (f *pinnedFolder) isSameFolder(dir *os.File) bool {
	info, err := dir.Stat()
	return err == nil && os.SameFile(f.info, info)
}

// releaseFolder removes a user and closes the folder after the last one.
func (f *pinnedFolder) releaseFolder() error {
	pinnedFolders.mu.Lock()
	defer pinnedFolders.mu.Unlock()
	if f.users--; f.users > 0 {
		return nil
	}
	pinnedFolders.folders = slices.DeleteFunc(pinnedFolders.folders, func(o *pinnedFolder) bool { return o == f })
	return f.dir.Close()
}
