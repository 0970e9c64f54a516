package function

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"stoa/agentsvc"
	"stoa/tenancy/grant"
)

// confinedFolder is the one that a tool is held to. Paths in it are relative, with slashes; what leads out of it, by dots or by
// a symbolic link, does not exist.
type confinedFolder struct {
	path     string           // where it lies anywhere
	location grant.RootedPath // where it lies below a root; Root is "" otherwise
}

// newConfinedFolder returns the folder of opts. It must be there.
func newConfinedFolder(opts Options) (confinedFolder, error) {
	if opts.Folder == "" {
		return confinedFolder{}, agentsvc.NewInvalidError("working_directory", "is needed")
	}
	abs, err := filepath.Abs(opts.Folder)
	if err != nil {
		return confinedFolder{}, err
	}
	f := confinedFolder{path: abs}
	if opts.Root != "" {
		below, ok := grant.RelBelow(opts.Root, abs)
		if !ok {
			return confinedFolder{}, agentsvc.NewInvalidError("working_directory", "lies outside of %s", opts.Root)
		}
		f.location = grant.RootedPath{Root: opts.Root, Path: below}
	}
	root, err := f.openRoot()
	if err != nil {
		return confinedFolder{}, agentsvc.NewInvalidError("working_directory", "%s is no folder", opts.Folder)
	}
	return f, root.Close()
}

// openRoot returns the folder as a root that nothing leads out of.
func (f confinedFolder) openRoot() (*os.Root, error) {
	open := f.location.OpenFolder
	if f.location.Root == "" {
		open = func() (*os.Root, error) { return os.OpenRoot(f.path) }
	}
	root, err := open()
	if err != nil {
		return nil, errors.New("the folder is not there any more")
	}
	return root, nil
}

// cleanLocalPath returns the path that a model means by name.
func cleanLocalPath(name string) (string, error) {
	clean := path.Clean(strings.TrimPrefix(name, "./"))
	if name == "" || strings.IndexByte(name, 0) >= 0 || !filepath.IsLocal(filepath.FromSlash(clean)) {
		return "", fmt.Errorf("%q is no path in the folder; give one such as notes/today.txt", name)
	}
	return clean, nil
}

// openFile opens a regular file to read. Opening waits for nobody, as it would for the writer of a pipe.
func openFile(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, describePathError(name, err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = fmt.Errorf("%s is a folder", name)
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is no regular file", name)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// describePathError says what went wrong with a path without telling where the folder lies.
func describePathError(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no %s", name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s may not be opened", name)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return errors.New("the disk is full")
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%s is not the kind of thing that its path says: a file stands where a folder should, or a folder where a file", name)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s changed while it was read", name)
	}
	return fmt.Errorf("%s cannot be reached in the folder", name)
}
