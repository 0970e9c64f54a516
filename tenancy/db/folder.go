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

// pinned are the folders that are in use.
var pinned struct {
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
	pinned.mu.Lock()
	defer pinned.mu.Unlock()
	for _, f := range pinned.folders {
		if os.SameFile(f.info, info) {
			f.users++
			return f, dir.Close()
		}
	}
	f := &pinnedFolder{dir: dir, info: info, users: 1}
	pinned.folders = append(pinned.folders, f)
	return f, nil
}

// file returns a path of the file of that name in the folder.
func (f *pinnedFolder) file(name string) string {
	if runtime.GOOS == "linux" {
		return fmt.Sprintf("/proc/self/fd/%d/%s", f.dir.Fd(), name)
	}
	return filepath.Join(f.dir.Name(), name)
}

// is reports whether dir is the same folder.
func (f *pinnedFolder) is(dir *os.File) bool {
	info, err := dir.Stat()
	return err == nil && os.SameFile(f.info, info)
}

// release closes the folder after its last user.
func (f *pinnedFolder) release() error {
	pinned.mu.Lock()
	defer pinned.mu.Unlock()
	if f.users--; f.users > 0 {
		return nil
	}
	pinned.folders = slices.DeleteFunc(pinned.folders, func(o *pinnedFolder) bool { return o == f })
	return f.dir.Close()
}
