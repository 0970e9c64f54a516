package configfile

import (
	"errors"
	"os"
	"path/filepath"

	"stoa/agentsvc/temporary"
)

// Replace replaces the content of a file in one step: a reader finds the whole former or the whole new text, also after a
// crash. The file keeps its mode and owner. A symbolic link stays, and what it refers to is replaced.
func Replace(path string, text []byte) (err error) {
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	file, err := temporary.CreateFile(filepath.Dir(path), "."+filepath.Base(path)+".new-")
	if err != nil {
		return err
	}
	renamed := false
	defer func() {
		err = errors.Join(err, file.Close())
		if err != nil && !renamed {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	if err := file.Chmod(info.Mode().Perm()); err != nil {
		return err
	}
	if err := keepOwner(file, info); err != nil {
		return err
	}
	if _, err := file.Write(text); err != nil {
		return err
	}
	// It is renamed before it is closed, which ends the lock by which others know that it is in use.
	if err := file.Sync(); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	renamed = true
	return syncFolder(filepath.Dir(path))
}

// syncFolder makes a rename in a folder durable.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
