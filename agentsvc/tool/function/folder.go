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

// confinedFolder is the only folder that a tool can access. Paths in it are relative, with slashes. Paths that leave
// it, by dots or symbolic links, do not exist for the tool ([os.Root]).
type confinedFolder struct {
	// path is the absolute path of a folder without a root.
	path string
	// location is the folder below a root; its Root is "" for a folder without one.
	location grant.RootedPath
	guard    *grant.Guard
}

// newConfinedFolder returns the folder of opts, or an error with [agentsvc.CodeInvalid]. The folder must exist.
func newConfinedFolder(opts Options) (confinedFolder, error) {
	// Without a folder the tool would read the process's working directory.
	if opts.Folder == "" {
		return confinedFolder{}, agentsvc.NewInvalidError("working_directory", "is needed")
	}
	abs, err := filepath.Abs(opts.Folder)
	if err != nil {
		return confinedFolder{}, err
	}
	f := confinedFolder{path: abs, guard: opts.Guard}
	if opts.Root != "" {
		// The folder is opened relative to the root, so that no symbolic link leads outside, see grant.RootedPath.
		below, ok := grant.RelBelow(opts.Root, abs)
		if !ok {
			return confinedFolder{}, agentsvc.NewInvalidError("working_directory", "lies outside of %s", opts.Root)
		}
		f.location = grant.RootedPath{Root: opts.Root, Path: below}
	}
	// Opened once to check that the folder exists.
	root, err := f.openRoot()
	if err != nil {
		return confinedFolder{}, agentsvc.NewInvalidError("working_directory", "%s is no folder", opts.Folder)
	}
	return f, root.Close()
}

// openRoot opens the folder for one call. It is opened each time, since it may have been removed or replaced. The
// caller must close the result. The error does not contain the path.
func (f confinedFolder) openRoot() (*os.Root, error) {
	open := f.location.OpenFolder
	if f.location.Root == "" {
		open = func() (*os.Root, error) { return os.OpenRoot(f.path) }
	}
	root, err := open()
	if err != nil {
		return nil, errors.New("the folder no longer exists")
	}
	return root, nil
}

// cleanLocalPath returns the cleaned relative path for a name that the model gave, or an error if it leaves the folder.
func cleanLocalPath(name string) (string, error) {
	// Slashes are the model's notation; IsLocal is checked in the host's.
	clean := path.Clean(strings.TrimPrefix(name, "./"))
	// A NUL would end the path for the kernel.
	if name == "" || strings.IndexByte(name, 0) >= 0 || !filepath.IsLocal(filepath.FromSlash(clean)) {
		return "", fmt.Errorf("%q is no path in the folder; give one such as notes/today.txt", name)
	}
	return clean, nil
}

// openFile opens a regular file for reading and returns it with its information. Files of the server itself are refused.
// The caller must close the file.
func (f confinedFolder) openFile(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	file, info, err := openRegularFile(root, name)
	if err == nil && f.guard.IsOwnFile(info) {
		_ = file.Close()
		return nil, nil, errOwnFile(name)
	}
	return file, info, err
}

// errOwnFile refuses a file of the server itself.
func errOwnFile(name string) error {
	return fmt.Errorf("%s is a file of the server's own, which no tool may use", name)
}

// openRegularFile opens a regular file. O_NONBLOCK keeps it from waiting for the writer of a named pipe; pipes, devices
// and folders are then refused.
func openRegularFile(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, describePathError(name, err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	// The kinds of files are distinguished, so that the model knows what to correct.
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

// describePathError returns an error for the model about a path in the folder. It does not reveal where the folder is.
func describePathError(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no %s", name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s may not be opened", name)
	// These are the operator's to solve: another path does not help.
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return errors.New("the disk is full")
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%s: the path has a file where a folder is expected, or a folder where a file is expected", name)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s changed while it was read", name)
	}
	// Any other error, e.g. a symbolic link out of the folder. Its text could contain the folder's path.
	return fmt.Errorf("%s cannot be reached in the folder", name)
}
