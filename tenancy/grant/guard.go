package grant

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// reservedFolders are folders of the host that no grant reaches: a root may neither lie in one nor contain one.
var reservedFolders = []string{
	"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/root", "/run", "/sbin", "/sys", "/usr", "/var/run",
	// Data of services, and spools for them, which programs running as root read.
	"/var/backups", "/var/cache", "/var/log", "/var/mail", "/var/spool", "/var/lib/containerd", "/var/lib/docker", "/var/lib/dpkg",
	"/var/lib/kubelet", "/var/lib/mysql", "/var/lib/postgresql", "/var/lib/private", "/var/lib/redis", "/var/lib/systemd",
}

// sharedFolders are folders that all users of a host share. They cannot be roots themselves; folders in them can.
var sharedFolders = []string{"/", "/home", "/tmp", "/var", "/var/lib", "/var/tmp"}

// Guard knows the folders that no grant may reach, and the server's own files, which no app may read or write: the
// operator's app may use any folder, and its default one often holds them. A nil Guard knows only the folders of the
// system. It is immutable.
type Guard struct {
	// serverPaths are absolute paths of files and folders of the server: data, configuration, secrets.
	serverPaths []string
	// ownFiles are absolute paths of the files among them.
	ownFiles []string
}

// NewGuard returns a guard of the system's folders and of the server's own files and folders.
func NewGuard(private ...string) (*Guard, error) {
	g := &Guard{}
	for _, path := range private {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		g.serverPaths = append(g.serverPaths, abs)
	}
	return g, nil
}

// WithOwnFiles returns a guard that also knows the server's own files, of which some may not exist yet.
func (g *Guard) WithOwnFiles(files ...string) (*Guard, error) {
	own := Guard{serverPaths: g.serverPaths}
	for _, file := range files {
		abs, err := filepath.Abs(file)
		if err != nil {
			return nil, err
		}
		own.ownFiles = append(own.ownFiles, abs)
	}
	return &own, nil
}

// OwnFiles returns the absolute paths of the server's own files.
func (g *Guard) OwnFiles() []string {
	if g == nil {
		return nil
	}
	return g.ownFiles
}

// IsOwnFile reports whether an open file is one of the server's own, under whatever name it was opened.
func (g *Guard) IsOwnFile(info fs.FileInfo) bool {
	return slices.ContainsFunc(g.OwnFiles(), func(path string) bool {
		own, err := os.Stat(path)
		return err == nil && os.SameFile(own, info)
	})
}

// CheckRoot returns an error if no grant may name root, as it is written or with symbolic links resolved.
func (g *Guard) CheckRoot(root string) error {
	for _, path := range []string{filepath.Clean(root), resolveSymlinks(root)} {
		if slices.Contains(sharedFolders, path) {
			return fmt.Errorf("the folder %s holds what belongs to others: name a folder in it", root)
		}
		for _, denied := range reservedFolders {
			if pathsOverlap(path, denied) || pathsOverlap(path, resolveSymlinks(denied)) {
				return fmt.Errorf("the folder %s lies in %s or holds it, which no grant reaches: it is the system's", root, denied)
			}
		}
		if g == nil {
			continue
		}
		for _, denied := range g.serverPaths {
			if pathsOverlap(path, denied) || pathsOverlap(path, resolveSymlinks(denied)) {
				return fmt.Errorf("the folder %s is, holds or lies in a folder with data, configuration or secrets of this server, which no grant reaches", root)
			}
		}
	}
	return nil
}

// RootedPath is a file or folder below a root. Opening it cannot lead outside of the root, whatever happens to the
// folders in its path meanwhile: os.Root refuses links that leave it.
type RootedPath struct {
	// Root is the path of the root without symbolic links.
	Root string
	// Path is relative to Root; "." is the root itself.
	Path string
}

// ErrOutsideRoots reports a path that is below none of the roots.
var ErrOutsideRoots = errors.New("lies below none of the folders that the operator has granted")

// ResolvePath returns the [RootedPath] of an absolute path below one of roots. The root is checked again: it may have
// become a symbolic link since it was granted. A path outside of all roots is [ErrOutsideRoots].
func (g *Guard) ResolvePath(roots []string, path string) (RootedPath, error) {
	if !filepath.IsAbs(path) {
		return RootedPath{}, errors.New("must be an absolute path")
	}
	for _, root := range roots {
		below, ok := RelBelow(root, path)
		if !ok {
			if below, ok = RelBelow(resolveSymlinks(root), path); !ok {
				continue
			}
		}
		if err := g.CheckRoot(root); err != nil {
			return RootedPath{}, err
		}
		resolved, err := filepath.EvalSymlinks(root)
		if err != nil {
			return RootedPath{}, fmt.Errorf("the granted folder %s does not exist", root)
		}
		return RootedPath{Root: resolved, Path: below}, nil
	}
	return RootedPath{}, fmt.Errorf("%w: %s", ErrOutsideRoots, strings.Join(roots, ", "))
}

// FullPath returns the absolute path.
func (p RootedPath) FullPath() string { return filepath.Join(p.Root, p.Path) }

// IsIn reports whether the path is folder or lies in it, with folder as written or with symbolic links resolved.
func (p RootedPath) IsIn(folder string) bool {
	_, written := RelBelow(folder, p.FullPath())
	_, resolved := RelBelow(resolveSymlinks(folder), p.FullPath())
	return written || resolved
}

// OpenFolder opens the folder as a root of its own. The caller must close it.
func (p RootedPath) OpenFolder() (*os.Root, error) {
	root, err := os.OpenRoot(p.Root)
	if err != nil || p.Path == "." {
		return root, err
	}
	defer func() { _ = root.Close() }()
	return root.OpenRoot(p.Path)
}

// StatFolder opens the folder and returns its path without symbolic links and its file information. It returns
// [ErrOutsideRoots] if the path now leads outside of the root.
func (p RootedPath) StatFolder() (string, fs.FileInfo, error) {
	folder, err := p.OpenFolder()
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = folder.Close() }()
	info, err := folder.Stat(".")
	if err != nil {
		return "", nil, err
	}
	name, err := filepath.EvalSymlinks(p.FullPath())
	if _, ok := RelBelow(p.Root, name); err == nil && !ok {
		err = ErrOutsideRoots
	}
	return name, info, err
}

// OpenFile opens a file for reading. O_NONBLOCK keeps it from waiting if the file is a named pipe without a writer.
func (p RootedPath) OpenFile() (*os.File, error) {
	root, err := os.OpenRoot(p.Root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return root.OpenFile(p.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// RelBelow returns path relative to root, and whether it is root or below it. It compares the text of the paths and
// does not look at the file system.
func RelBelow(root, path string) (string, bool) {
	below, err := filepath.Rel(filepath.Clean(root), filepath.Clean(path))
	return below, err == nil && filepath.IsLocal(below)
}

// pathsOverlap reports whether one of two paths equals the other or lies below it.
func pathsOverlap(a, b string) bool {
	_, aboveB := RelBelow(a, b)
	_, aboveA := RelBelow(b, a)
	return aboveA || aboveB
}

// resolveSymlinks resolves the symbolic links in the existing part of a path; the rest of the path is appended
// unchanged.
func resolveSymlinks(path string) string {
	path = filepath.Clean(path)
	for part, remainder := path, ""; ; part, remainder = filepath.Dir(part), filepath.Join(filepath.Base(part), remainder) {
		if resolved, err := filepath.EvalSymlinks(part); err == nil {
			return filepath.Join(resolved, remainder)
		}
		if part == filepath.Dir(part) {
			return path
		}
	}
}
