// Package grant defines the powers over the host that an operator gives to an app: their form in the API, on the
// command line and in the database, and the folders that a power with roots reaches.
//
// A [List] is what an app was granted. [List.Normalize] checks it when the operator sets it; [List.Has] and
// [List.Roots] are asked when the app's configuration is built. A [Guard] knows the folders that no grant may reach:
// those of the system and of this server. [Guard.ResolvePath] turns a path in a configuration into a [RootedPath],
// through which files are opened without leaving the granted root, even if links are exchanged meanwhile. See
// docs/security.md.
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

// The powers.
const (
	// Command runs programs of the host, in folders below its roots.
	Command = "command"
	// Filesystem reads files and folders below its roots.
	Filesystem = "filesystem"
	// OperatorModels uses the operator's API keys of models.
	OperatorModels = "operator_models"
	// PrivateNetwork connects to addresses of private networks.
	PrivateNetwork = "private_network"
	// SQLite opens SQLite files below the roots of Filesystem.
	SQLite = "sqlite"
	// Stdio starts MCP servers that are programs of the host.
	Stdio = "stdio"
)

// grantNames are all powers, sorted, for checks and error messages.
var grantNames = []string{Command, Filesystem, OperatorModels, PrivateNetwork, SQLite, Stdio}

// Bounds of a list of grants.
const (
	maxGrants = 32
	// maxRoots bounds the roots of one grant.
	maxRoots = 32
	// maxRootLength bounds one root, in bytes.
	maxRootLength = 1024
)

// Grant is one power. In JSON it is its name, or an object with the name as the only key and the roots as its value.
type Grant struct {
	Name string
	// Roots are absolute paths of folders. Only Filesystem and Command have any.
	Roots []string
}

// needsRoots reports whether a power has no effect without roots.
func needsRoots(name string) bool { return name == Command || name == Filesystem }

// MarshalJSON implements [json.Marshaler].
func (g Grant) MarshalJSON() ([]byte, error) {
	if len(g.Roots) == 0 {
		return json.Marshal(g.Name)
	}
	return json.Marshal(map[string][]string{g.Name: g.Roots})
}

// UnmarshalJSON implements [json.Unmarshaler]. It accepts what [Grant.MarshalJSON] writes, and does not check names or
// roots: a grant that is stored must stay readable if the rules become stricter.
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

// String returns the grant in the form of the command line, NAME=ROOT once for each root.
func (g Grant) String() string {
	if len(g.Roots) == 0 {
		return g.Name
	}
	return g.Name + "=" + strings.Join(g.Roots, ", "+g.Name+"=")
}

// List is everything that an app was granted.
type List []Grant

// ParseList parses grants in the form of the command line: NAME, or NAME=ROOT once for each root. It does not check
// them.
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

// Has reports whether the list gives the power. A power that needs roots is not given without any.
func (l List) Has(name string) bool {
	return slices.ContainsFunc(l, func(g Grant) bool { return g.Name == name && (!needsRoots(name) || len(g.Roots) > 0) })
}

// IsRootless reports whether the list names a power that needs roots without any, as lists stored by earlier versions
// do.
func (l List) IsRootless(name string) bool {
	return needsRoots(name) && !l.Has(name) && slices.ContainsFunc(l, func(g Grant) bool { return g.Name == name })
}

// Roots returns the folders that the power reaches, in the order of the list.
func (l List) Roots(name string) []string {
	var roots []string
	for _, g := range l {
		if g.Name == name {
			roots = append(roots, g.Roots...)
		}
	}
	return roots
}

// FindProgramOverlap reports whether programs that l allows reach folders in which other allows SQLite files, and
// returns one folder of each. Paths are compared as written and with symbolic links resolved.
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

// Equal reports whether l and other have the same elements in the same order; normalized lists are equal if they give
// the same powers.
func (l List) Equal(other List) bool {
	return slices.EqualFunc(l, other, func(a, b Grant) bool { return a.Name == b.Name && slices.Equal(a.Roots, b.Roots) })
}

// Normalize checks a list that an operator wrote and returns it sorted, with one element for each name. guard may be
// nil. The error describes the first bad element.
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

// checkGrant checks one element: its name, whether it has roots exactly if it needs them, and each root.
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

// mergeRoots returns one element for each name with its cleaned roots, sorted and without duplicates.
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
