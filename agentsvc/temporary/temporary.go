// Package temporary makes temporary folders and files of which none remains for long when the process is killed. Each is
// locked by an flock(2) for as long as it is in use: the kernel releases the lock when the process ends, so what is not
// locked belongs to no process and is removed by the next one.
package temporary

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// folderPrefix begins the names of all folders, in the system's folder for temporary files, which others use as well.
const folderPrefix = "stoa-tmp-"

// maxTries bounds how often a folder or a file is made again because another process removed it before it was locked.
const maxTries = 100

// Folder is a folder for files of one purpose. It is removed with everything in it. The lock is that of the folder, so that
// programs which lock the files in it are not disturbed.
type Folder struct {
	// Path has no symbolic links.
	Path string
	lock *os.File
}

// MakeFolder makes a folder with mode 0700 in the system's folder for temporary files. purpose is a part of its name.
func MakeFolder(purpose string) (*Folder, error) {
	return makeFolder("", folderPrefix+purpose+"-")
}

// CreateFolder makes a folder with mode 0700 in parent, whose name begins with prefix, for a file that the caller moves
// elsewhere on the same disk. Folders with this prefix of processes that have ended are removed as far as possible.
func CreateFolder(parent, prefix string) (*Folder, error) {
	_, _ = removeFolders(parent, prefix)
	return makeFolder(parent, prefix)
}

// makeFolder makes a folder whose name begins with prefix in parent, "" for the system's folder for temporary files.
func makeFolder(parent, prefix string) (*Folder, error) {
	for range maxTries {
		path, err := os.MkdirTemp(parent, prefix)
		if err != nil {
			return nil, err
		}
		lock, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, errors.Join(err, os.Remove(path))
		}
		if !keepLock(lock, path) {
			_ = lock.Close()
			continue
		}
		f := &Folder{lock: lock}
		if f.Path, err = filepath.EvalSymlinks(path); err != nil {
			f.Path = path
			return nil, errors.Join(err, f.Remove())
		}
		return f, nil
	}
	return nil, errors.New("other processes remove each temporary folder")
}

// Remove removes the folder and what is in it.
func (f *Folder) Remove() error {
	return errors.Join(os.RemoveAll(f.Path), f.lock.Close())
}

// RemoveFolders removes the folders of processes that have ended and returns how many there were. Those of other users are
// left alone, unless this process is root: it gives folders to the user of its sandboxes.
func RemoveFolders() (removed int, err error) {
	return removeFolders(os.TempDir(), folderPrefix)
}

// removeFolders is [RemoveFolders] of the folders in parent whose names begin with prefix.
func removeFolders(parent, prefix string) (removed int, err error) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return 0, err
	}
	for _, entry := range entries {
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), prefix) || !isOwn(entry) {
			continue
		}
		path := filepath.Join(parent, entry.Name())
		done, removeErr := removeUnlocked(path, syscall.O_DIRECTORY)
		if done {
			removed++
		}
		err = errors.Join(err, removeErr)
	}
	return removed, err
}

// isOwn reports whether an entry of a folder belongs to the user of this process, or that user is root.
func isOwn(entry fs.DirEntry) bool {
	info, err := entry.Info()
	if err != nil {
		return false
	}
	status, ok := info.Sys().(*syscall.Stat_t)
	return ok && (os.Geteuid() == 0 || int(status.Uid) == os.Geteuid())
}

// CreateFile creates a file with mode 0600 in folder, whose name begins with prefix and which the caller renames or removes
// before it closes it. Files with this prefix of processes that have ended are removed.
func CreateFile(folder, prefix string) (*os.File, error) {
	removeFiles(folder, prefix)
	for range maxTries {
		f, err := os.CreateTemp(folder, prefix+"*")
		if err != nil {
			return nil, err
		}
		if keepLock(f, f.Name()) {
			return f, nil
		}
		_ = f.Close()
	}
	return nil, errors.New("other processes remove each temporary file")
}

// removeFiles removes the files in folder whose names begin with prefix and which no process has locked, as far as it can.
func removeFiles(folder, prefix string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !strings.HasPrefix(entry.Name(), prefix) || !isOwn(entry) {
			continue
		}
		_, _ = removeUnlocked(filepath.Join(folder, entry.Name()), 0)
	}
}

// removeUnlocked removes what is at path if no process has locked it, and reports whether it did.
func removeUnlocked(path string, flags int) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|flags, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	// Where the file system knows no locks, nothing is removed.
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return false, nil
	}
	return true, os.RemoveAll(path)
}

// keepLock locks f and reports whether it is still what is at path: another process may have removed it as one that
// belongs to no process, between its creation and the lock. Where the file system knows no locks, nothing is removed.
func keepLock(f *os.File, path string) bool {
	if errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK) {
		return false
	}
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(opened, named)
}
