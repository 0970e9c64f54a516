package main

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// surfaceFolder is the folder of the surfaces, and routeTableFile the file that lists them.
const (
	surfaceFolder  = "agentsvc/surface"
	routeTableFile = "cmd/stoa/server/surfaces.go"
)

// allowedImporters are the files other than the table of protocols that may import a surface. A new protocol needs
// none.
var allowedImporters = map[string][]string{
	"ext":     {"cmd/stoa/server/cards.go", "cmd/stoa/server/grpc.go"}, // the path of the card keys, and the readiness check
	"a2a":     {"cmd/stoa/server/notify.go", "agentsvc/surface/a2agrpc"},
	"a2agrpc": {"cmd/stoa/server/cards.go", "cmd/stoa/server/grpc.go", "cmd/stoa/server/drain.go"}, // a port of its own instead of a line in the table
	"webhook": {"cmd/stoa/server/notify.go"},
}

// isProtocol reports whether a folder is that of a protocol. The packages below agentsvc/surface that protocols share are
// on lower layers.
func isProtocol(folder string) bool {
	return path.Dir(folder) == surfaceFolder && layers[folder] >= layers["agentsvc/surface/ext"]
}

// TestPlanDialects checks that a protocol is one folder and one line in the table of protocols: no other product code
// imports it.
func TestPlanDialects(t *testing.T) {
	t.Parallel()
	lines, met := map[string]int{}, map[string]bool{}
	for _, f := range listGoFiles(t) {
		if f.isTest || isTestPackage(f.folder) {
			continue
		}
		for _, imported := range f.imports {
			folder := strings.TrimPrefix(imported, modulePath+"/")
			name := path.Base(folder)
			// The description of the table, and the surface with a port of its own.
			if !isProtocol(folder) || folder == f.folder || f.path == routeTableFile {
				continue
			}
			i := slices.IndexFunc(allowedImporters[name], func(who string) bool { return who == f.path || who == f.folder })
			if i < 0 {
				t.Errorf("%s imports the protocol %s: what it needs belongs into agentsvc/surface, or into a surface.Route", f.path, name)
				continue
			}
			met[name+" "+allowedImporters[name][i]] = true
		}
		if f.path == routeTableFile {
			ast.Inspect(f.tree, func(n ast.Node) bool {
				if call, ok := n.(*ast.SelectorExpr); ok && call.Sel.Name == "Routes" {
					if folder, ok := call.X.(*ast.Ident); ok {
						lines[folder.Name]++
					}
				}
				return true
			})
		}
	}
	for name, known := range allowedImporters {
		for _, who := range known {
			if !met[name+" "+who] {
				t.Errorf("%s does not import %s any more: remove it from allowedImporters", who, name)
			}
		}
	}
	for folder := range layers {
		name := path.Base(folder)
		if !isProtocol(folder) || name == "openapi" || name == "a2agrpc" { // the description of the table, and the surface with a port
			continue
		}
		if lines[name] != 1 {
			t.Errorf("%s has %d lines in the table of protocols in %s, want one", name, lines[name], routeTableFile)
		}
	}
}
