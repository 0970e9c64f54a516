package db

import (
	"fmt"
	"os"
	"syscall"
)

// lockFile takes the lock beside the SQLite file at path, which errors call name, for as long as the returned file is open. The
// kernel drops it with the process, so a lock proves that its holder lives. A shared lock keeps out only who wants the file alone.
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

// createPrivateFile makes the file at path, which errors call name, so that only its owner reads it. SQLite gives the files it
// puts beside it the same mode. One that exists is left alone: to close it would drop the locks that other connections of
// this process hold on it.
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
