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

// reservedFolders are the folders of the host that no grant reaches: none lies in one of them or has one in it.
var reservedFolders = []string{
	"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/root", "/run", "/sbin", "/sys", "/usr", "/var/run",
	// What services of the host keep, and what is queued for them: programs of root read it.
	"/var/backups", "/var/cache", "/var/log", "/var/mail", "/var/spool", "/var/lib/containerd", "/var/lib/docker", "/var/lib/dpkg",
	"/var/lib/kubelet", "/var/lib/mysql", "/var/lib/postgresql", "/var/lib/private", "/var/lib/redis", "/var/lib/systemd",
}

// sharedFolders are folders that belong to all users of a host: a grant names a folder in them.
var sharedFolders = []string{"/", "/home", "/tmp", "/var", "/var/lib", "/var/tmp"}

// Guard knows what no grant reaches. A nil Guard knows the host's own folders alone.
type Guard struct {
	serverPaths []string // files and folders of the server: data, configuration, secrets
}

// NewGuard returns a guard of the server's own files and folders.
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

// CheckRoot returns an error if no grant may name root, as it is written or where its symbolic links lead.
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

// RootedPath is a file or folder below a root. Opening it leads nowhere else, whatever programs do to the folders above it
// meanwhile.
type RootedPath struct {
	Root string // without symbolic links
	Path string // below it, "." for the root itself
}

// ErrOutsideRoots reports a path that lies below none of the roots.
var ErrOutsideRoots = errors.New("lies below none of the folders that the operator has granted")

// ResolvePath returns the place of an absolute path below one of roots, each of which is checked anew: what is a link now need not
// have been one when it was granted.
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
			return RootedPath{}, fmt.Errorf("the folder %s that the operator has granted is not there", root)
		}
		return RootedPath{Root: resolved, Path: below}, nil
	}
	return RootedPath{}, fmt.Errorf("%w: %s", ErrOutsideRoots, strings.Join(roots, ", "))
}

// FullPath returns the place as a path.
func (p RootedPath) FullPath() string { return filepath.Join(p.Root, p.Path) }

// IsIn reports whether the place is folder or lies in it, as folder is written or where its symbolic links lead.
func (p RootedPath) IsIn(folder string) bool {
	_, written := RelBelow(folder, p.FullPath())
	_, resolved := RelBelow(resolveSymlinks(folder), p.FullPath())
	return written || resolved
}

// OpenFolder opens the folder.
func (p RootedPath) OpenFolder() (*os.Root, error) {
	root, err := os.OpenRoot(p.Root)
	if err != nil || p.Path == "." {
		return root, err
	}
	defer func() { _ = root.Close() }()
	return root.OpenRoot(p.Path)
}

// StatFolder opens the folder and returns what it is and its path without symbolic links.
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

// OpenFile opens a file for reading. It does not wait for the writer of a pipe.
func (p RootedPath) OpenFile() (*os.File, error) {
	root, err := os.OpenRoot(p.Root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return root.OpenFile(p.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// RelBelow returns path relative to root, if it is root or lies below it as both are written.
func RelBelow(root, path string) (string, bool) {
	below, err := filepath.Rel(filepath.Clean(root), filepath.Clean(path))
	return below, err == nil && filepath.IsLocal(below)
}

// pathsOverlap reports whether one of two clean paths is the other or lies below it.
func pathsOverlap(a, b string) bool {
	_, aboveB := RelBelow(a, b)
	_, aboveA := RelBelow(b, a)
	return aboveA || aboveB
}

// resolveSymlinks follows the symbolic links of the part of a path that is there.
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
