package db

import (
	"fmt"
	"os"
	"syscall"
)

// lockFile takes the lock beside the SQLite file at path for as long as the returned file is open. The kernel drops
// it with the process, so a lock proves that its holder lives. A shared lock keeps out only who wants the file alone.
func lockFile(path string, shared bool) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the SQLite file %s cannot be locked: %w", path, err)
	}
	how := syscall.LOCK_EX
	if shared {
		how = syscall.LOCK_SH
	}
	if err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("the SQLite file %s is in use by another process: stop it, or choose another --database", path)
	}
	return f, nil
}

// private makes the file at path, if it is not there, so that nobody but its owner reads it. SQLite gives the files it
// puts beside it the same mode.
func private(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("the SQLite file %s cannot be written: %w", path, err)
	}
	return f.Close()
}
