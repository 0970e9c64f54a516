package main

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// dialects is where the surfaces live, and table the file that lists them.
const (
	dialects = "agentsvc/surface"
	table    = "cmd/stoa/front.go"
)

// acquaintances are the files beside the table of surfaces that know one. A new dialect needs none.
var acquaintances = map[string][]string{
	"ext":     {"cmd/stoa/cards.go", "cmd/stoa/grpc.go"}, // shows the keys of cards, and knows when the house is ready
	"a2a":     {"cmd/stoa/notify.go", "agentsvc/surface/a2agrpc"},
	"a2agrpc": {"cmd/stoa/cards.go", "cmd/stoa/grpc.go", "cmd/stoa/serve.go"}, // no HTTP: it has a port instead of a line in the table
	"webhook": {"cmd/stoa/clock.go", "cmd/stoa/notify.go"},
}

// TestPlanDialects holds that a dialect is one folder and one line in the table of surfaces: no other product code knows of it.
func TestPlanDialects(t *testing.T) {
	t.Parallel()
	lines, met := map[string]int{}, map[string]bool{}
	for _, f := range goFiles(t) {
		if f.test || isTestRoom(f.room) {
			continue
		}
		for _, imported := range f.imports {
			room := strings.TrimPrefix(imported, module+"/")
			name := path.Base(room)
			if path.Dir(room) != dialects || room == f.room || f.path == table {
				continue
			}
			i := slices.IndexFunc(acquaintances[name], func(who string) bool { return who == f.path || who == f.room })
			if i < 0 {
				t.Errorf("%s knows the dialect %s: what it needs belongs into agentsvc/surface, or into a surface.Route", f.path, name)
				continue
			}
			met[name+" "+acquaintances[name][i]] = true
		}
		if f.path == table {
			ast.Inspect(f.tree, func(n ast.Node) bool {
				if call, ok := n.(*ast.SelectorExpr); ok && call.Sel.Name == "Routes" {
					if room, ok := call.X.(*ast.Ident); ok {
						lines[room.Name]++
					}
				}
				return true
			})
		}
	}
	for name, known := range acquaintances {
		for _, who := range known {
			if !met[name+" "+who] {
				t.Errorf("%s does not know %s any more: take it out of acquaintances", who, name)
			}
		}
	}
	for room := range floors {
		name := path.Base(room)
		if path.Dir(room) != dialects || name == "openapi" || name == "a2agrpc" { // what tells of the table, and what has a port instead
			continue
		}
		if lines[name] != 1 {
			t.Errorf("%s has %d lines in the table of surfaces in %s, want one", name, lines[name], table)
		}
	}
}
