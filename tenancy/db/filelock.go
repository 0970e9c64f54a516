package db

import (
	"fmt"
	"os"
	"syscall"
)

// LockFile locks the platform's SQLite file at path, which need not exist, against every other process until the returned
// file is closed.
func LockFile(path string) (*os.File, error) { return lockFile(path, path, false) }

// lockFile locks the SQLite file at path by an flock(2) on the file path.lock, until the returned file is closed. name
// is what errors call the file. The kernel releases the lock when the process ends, so a lock proves that its owner is
// alive. A shared lock excludes only an exclusive one.
func lockFile(path, name string, shared bool) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the SQLite file %s cannot be locked: %w", name, err)
	}
	how := syscall.LOCK_EX
	if shared {
		how = syscall.LOCK_SH
	}
	if err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("the SQLite file %s is in use by another process: stop it, or choose another --database", name)
	}
	return f, nil
}

// createPrivateFile creates the file at path with mode 0600; SQLite gives its auxiliary files the same mode. name is
// what errors call the file. An existing file is not opened: closing it would release the POSIX locks of this process's
// other connections to it.
func createPrivateFile(path, name string, flags int) error {
	if _, err := os.Lstat(path); err == nil && flags&syscall.O_NOFOLLOW != 0 {
		return nil
	}
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|flags, 0o600)
	if err != nil {
		return fmt.Errorf("the SQLite file %s cannot be written: %w", name, err)
	}
	return f.Close()
}
