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

// reserved are the folders of the host that no grant reaches: none lies in one of them or has one in it.
var reserved = []string{
	"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/root", "/run", "/sbin", "/sys", "/usr", "/var/run",
	// What services of the host keep, and what is queued for them: programs of root read it.
	"/var/backups", "/var/cache", "/var/log", "/var/mail", "/var/spool", "/var/lib/containerd", "/var/lib/docker", "/var/lib/dpkg",
	"/var/lib/kubelet", "/var/lib/mysql", "/var/lib/postgresql", "/var/lib/private", "/var/lib/redis", "/var/lib/systemd",
}

// shared are folders that belong to all users of a host: a grant names a folder in them.
var shared = []string{"/", "/home", "/tmp", "/var", "/var/lib", "/var/tmp"}

// Guard knows what no grant reaches. A nil Guard knows the host's own folders alone.
type Guard struct {
	private []string // files and folders of the server: data, configuration, secrets
}

// NewGuard returns a guard of the server's own files and folders.
func NewGuard(private ...string) (*Guard, error) {
	g := &Guard{}
	for _, path := range private {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		g.private = append(g.private, abs)
	}
	return g, nil
}

// Check returns an error if no grant may name root, as it is written or where its symbolic links lead.
func (g *Guard) Check(root string) error {
	for _, path := range []string{filepath.Clean(root), resolve(root)} {
		if slices.Contains(shared, path) {
			return fmt.Errorf("the folder %s holds what belongs to others: name a folder in it", root)
		}
		for _, no := range reserved {
			if overlap(path, no) || overlap(path, resolve(no)) {
				return fmt.Errorf("the folder %s lies in %s or holds it, which no grant reaches: it is the system's", root, no)
			}
		}
		if g == nil {
			continue
		}
		for _, no := range g.private {
			if overlap(path, no) || overlap(path, resolve(no)) {
				return fmt.Errorf("the folder %s is, holds or lies in a folder with data, configuration or secrets of this server, which no grant reaches", root)
			}
		}
	}
	return nil
}

// Place is a file or folder below a root. Opening it leads nowhere else, whatever programs do to the folders above it
// meanwhile.
type Place struct {
	Root string // without symbolic links
	Path string // below it, "." for the root itself
}

// ErrOutside reports a path that lies below none of the roots.
var ErrOutside = errors.New("lies below none of the folders that the operator has granted")

// Find returns the place of an absolute path below one of roots, each of which is checked anew: what is a link now need not
// have been one when it was granted.
func (g *Guard) Find(roots []string, path string) (Place, error) {
	if !filepath.IsAbs(path) {
		return Place{}, errors.New("must be an absolute path")
	}
	for _, root := range roots {
		below, ok := Below(root, path)
		if !ok {
			if below, ok = Below(resolve(root), path); !ok {
				continue
			}
		}
		if err := g.Check(root); err != nil {
			return Place{}, err
		}
		resolved, err := filepath.EvalSymlinks(root)
		if err != nil {
			return Place{}, fmt.Errorf("the folder %s that the operator has granted is not there", root)
		}
		return Place{Root: resolved, Path: below}, nil
	}
	return Place{}, fmt.Errorf("%w: %s", ErrOutside, strings.Join(roots, ", "))
}

// Name returns the place as a path.
func (p Place) Name() string { return filepath.Join(p.Root, p.Path) }

// LiesIn reports whether the place is folder or lies in it, as folder is written or where its symbolic links lead.
func (p Place) LiesIn(folder string) bool {
	_, written := Below(folder, p.Name())
	_, resolved := Below(resolve(folder), p.Name())
	return written || resolved
}

// Folder opens the folder.
func (p Place) Folder() (*os.Root, error) {
	root, err := os.OpenRoot(p.Root)
	if err != nil || p.Path == "." {
		return root, err
	}
	defer func() { _ = root.Close() }()
	return root.OpenRoot(p.Path)
}

// Stat opens the folder and returns what it is and its path without symbolic links.
func (p Place) Stat() (string, fs.FileInfo, error) {
	folder, err := p.Folder()
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = folder.Close() }()
	info, err := folder.Stat(".")
	if err != nil {
		return "", nil, err
	}
	name, err := filepath.EvalSymlinks(p.Name())
	if _, ok := Below(p.Root, name); err == nil && !ok {
		err = ErrOutside
	}
	return name, info, err
}

// Open opens a file for reading. It does not wait for the writer of a pipe.
func (p Place) Open() (*os.File, error) {
	root, err := os.OpenRoot(p.Root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return root.OpenFile(p.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// Below returns path relative to root, if it is root or lies below it as both are written.
func Below(root, path string) (string, bool) {
	below, err := filepath.Rel(filepath.Clean(root), filepath.Clean(path))
	return below, err == nil && filepath.IsLocal(below)
}

// overlap reports whether one of two clean paths is the other or lies below it.
func overlap(a, b string) bool {
	_, aboveB := Below(a, b)
	_, aboveA := Below(b, a)
	return aboveA || aboveB
}

// resolve follows the symbolic links of the part of a path that is there.
func resolve(path string) string {
	path = filepath.Clean(path)
	for part, rest := path, ""; ; part, rest = filepath.Dir(part), filepath.Join(filepath.Base(part), rest) {
		if resolved, err := filepath.EvalSymlinks(part); err == nil {
			return filepath.Join(resolved, rest)
		}
		if part == filepath.Dir(part) {
			return path
		}
	}
}
