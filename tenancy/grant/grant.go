// Package grant holds the powers over the host that an operator gives an app: their form in the API, on the command line and
// in the database, and which folders a grant with roots reaches.
package grant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// The grants.
const (
	Command        = "command"         // programs of the host, in folders below its roots
	Filesystem     = "filesystem"      // files and folders below its roots
	OperatorModels = "operator_models" // the operator's keys of models
	PrivateNetwork = "private_network" // private addresses
	SQLite         = "sqlite"          // SQLite files, below the roots of filesystem
	Stdio          = "stdio"           // MCP servers that are programs of the host
)

var grantNames = []string{Command, Filesystem, OperatorModels, PrivateNetwork, SQLite, Stdio}

// Bounds of what an app is granted.
const (
	maxGrants     = 32
	maxRoots      = 32 // of one grant
	maxRootLength = 1024
)

// Grant is one power. In JSON it is its name, or an object with its name as the only key and its roots as the value.
type Grant struct {
	Name  string
	Roots []string // absolute paths of folders; of filesystem and command alone
}

// needsRoots reports whether a grant means nothing without roots.
func needsRoots(name string) bool { return name == Command || name == Filesystem }

// MarshalJSON implements [json.Marshaler].
func (g Grant) MarshalJSON() ([]byte, error) {
	if len(g.Roots) == 0 {
		return json.Marshal(g.Name)
	}
	return json.Marshal(map[string][]string{g.Name: g.Roots})
}

// UnmarshalJSON implements [json.Unmarshaler]. It takes what [Grant.MarshalJSON] writes, and does not check it.
func (g *Grant) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		*g = Grant{}
		return json.Unmarshal(raw, &g.Name)
	}
	var object map[string][]string
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(&object); err != nil || len(object) != 1 {
		return errors.New(`a grant is a name, such as "stdio", or an object with one key, such as {"filesystem": ["/srv/acme"]}`)
	}
	for name, roots := range object {
		*g = Grant{Name: name, Roots: append([]string{}, roots...)}
	}
	return nil
}

// String returns the grant as the command line takes it, one word for each root.
func (g Grant) String() string {
	if len(g.Roots) == 0 {
		return g.Name
	}
	return g.Name + "=" + strings.Join(g.Roots, ", "+g.Name+"=")
}

// List is all that an app is granted.
type List []Grant

// ParseList reads grants as the command line takes them: NAME, or NAME=ROOT, once for each root. It does not check them.
func ParseList(words []string) List {
	list := List{}
	for _, word := range words {
		name, root, _ := strings.Cut(word, "=")
		i := slices.IndexFunc(list, func(g Grant) bool { return g.Name == name })
		if i < 0 {
			i, list = len(list), append(list, Grant{Name: name})
		}
		if root != "" {
			list[i].Roots = append(list[i].Roots, root)
		}
	}
	return list
}

// Has reports whether the list gives a power. One that takes roots gives nothing without any.
func (l List) Has(name string) bool {
	return slices.ContainsFunc(l, func(g Grant) bool { return g.Name == name && (!needsRoots(name) || len(g.Roots) > 0) })
}

// IsRootless reports whether the list names a power that takes roots without any, as lists of earlier versions do.
func (l List) IsRootless(name string) bool {
	return needsRoots(name) && !l.Has(name) && slices.ContainsFunc(l, func(g Grant) bool { return g.Name == name })
}

// Roots returns the folders that a power reaches.
func (l List) Roots(name string) []string {
	var roots []string
	for _, g := range l {
		if g.Name == name {
			roots = append(roots, g.Roots...)
		}
	}
	return roots
}

// FindProgramOverlap reports whether programs that l lets run reach folders in which other lets SQLite files lie, and names one of each.
func (l List) FindProgramOverlap(other List) (folder, files string, overlaps bool) {
	if !other.Has(SQLite) {
		return "", "", false
	}
	for _, folder := range l.Roots(Command) {
		for _, files := range other.Roots(Filesystem) {
			if pathsOverlap(filepath.Clean(folder), filepath.Clean(files)) || pathsOverlap(resolveSymlinks(folder), resolveSymlinks(files)) {
				return folder, files, true
			}
		}
	}
	return "", "", false
}

// Equal reports whether l and other give the same in the same order.
func (l List) Equal(other List) bool {
	return slices.EqualFunc(l, other, func(a, b Grant) bool { return a.Name == b.Name && slices.Equal(a.Roots, b.Roots) })
}

// Normalize returns what an operator has written, in order and each once, or what is wrong with it.
func (l List) Normalize(guard *Guard) (List, error) {
	if len(l) > maxGrants {
		return nil, fmt.Errorf("there are %d, %d are allowed", len(l), maxGrants)
	}
	for _, g := range l {
		if err := g.checkGrant(guard); err != nil {
			return nil, err
		}
	}
	normalized := l.mergeRoots()
	for _, g := range normalized {
		if len(g.Roots) > maxRoots {
			return nil, fmt.Errorf("%s has %d folders, %d are allowed", g.Name, len(g.Roots), maxRoots)
		}
	}
	return normalized, nil
}

func (g Grant) checkGrant(guard *Guard) error {
	switch {
	case !slices.Contains(grantNames, g.Name):
		return fmt.Errorf("%.40q is no grant; there are %s", g.Name, strings.Join(grantNames, ", "))
	case needsRoots(g.Name) && len(g.Roots) == 0:
		return fmt.Errorf(`%[1]s names the folders that it reaches: {"%[1]s": ["/srv/acme"]}, on the command line --grant %[1]s=/srv/acme`, g.Name)
	case !needsRoots(g.Name) && g.Roots != nil:
		return fmt.Errorf("%s takes no folders", g.Name)
	}
	for _, root := range g.Roots {
		switch {
		case len(root) > maxRootLength:
			return fmt.Errorf("%s: the folder %.40q... is longer than %d bytes", g.Name, root, maxRootLength)
		case !filepath.IsAbs(root) || strings.ContainsFunc(root, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return fmt.Errorf("%s: the folder %.80q must be an absolute path", g.Name, root)
		}
		if err := guard.CheckRoot(root); err != nil {
			return fmt.Errorf("%s: %w", g.Name, err)
		}
	}
	return nil
}

// mergeRoots puts the roots of one name together, cleans and sorts them.
func (l List) mergeRoots() List {
	roots := map[string][]string{}
	for _, g := range l {
		roots[g.Name] = append(roots[g.Name], nil...)
		for _, root := range g.Roots {
			if filepath.IsAbs(root) {
				root = filepath.Clean(root)
			}
			roots[g.Name] = append(roots[g.Name], root)
		}
	}
	merged := List{}
	for name, all := range roots {
		slices.Sort(all)
		merged = append(merged, Grant{Name: name, Roots: slices.Compact(all)})
	}
	slices.SortFunc(merged, func(a, b Grant) int { return strings.Compare(a.Name, b.Name) })
	return merged
}
