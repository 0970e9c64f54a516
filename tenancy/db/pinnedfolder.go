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

// pinnedFolder is a folder that stays open, so that names of files in it lead into this folder and no other, whatever takes its
// place in the path. All who use one folder share one: SQLite keeps one name for the memory that connections to a file share,
// and removes the file behind that name with the last of them.
type pinnedFolder struct {
	dir   *os.File
	info  fs.FileInfo
	users int // under pinned.mu
}

// pinnedFolders are the folders that are in use.
var pinnedFolders struct {
	mu      sync.Mutex
	folders []*pinnedFolder
}

// pinFolder returns the pinned folder that dir is. It takes dir over.
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

// filePath returns a path of the file of that name in the folder.
func (f *pinnedFolder) filePath(name string) string {
	if runtime.GOOS == "linux" {
		return fmt.Sprintf("/proc/self/fd/%d/%s", f.dir.Fd(), name)
	}
	return filepath.Join(f.dir.Name(), name)
}

// isSameFolder reports whether dir is the same folder.
func (f *pinnedFolder) isSameFolder(dir *os.File) bool {
	info, err := dir.Stat()
	return err == nil && os.SameFile(f.info, info)
}

// releaseFolder closes the folder after its last user.
func (f *pinnedFolder) releaseFolder() error {
	pinnedFolders.mu.Lock()
	defer pinnedFolders.mu.Unlock()
	if f.users--; f.users > 0 {
		return nil
	}
	pinnedFolders.folders = slices.DeleteFunc(pinnedFolders.folders, func(o *pinnedFolder) bool { return o == f })
	return f.dir.Close()
}
