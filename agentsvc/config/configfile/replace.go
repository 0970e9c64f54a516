package configfile

import (
	"errors"
	"os"
	"path/filepath"
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
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = temporary.Close() // closed twice after a failed rename
			err = errors.Join(err, os.Remove(temporary.Name()))
		}
	}()
	if err := temporary.Chmod(info.Mode().Perm()); err != nil {
		return err
	}
	if err := keepOwner(temporary, info); err != nil {
		return err
	}
	if _, err := temporary.Write(text); err != nil {
		return err
	}
	if err := errors.Join(temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary.Name(), path); err != nil {
		return err
	}
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
