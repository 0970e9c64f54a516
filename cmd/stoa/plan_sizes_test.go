package main

import (
	"go/ast"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Limits of docs/architecture.md: a package is one concept, a type with more methods or fields is several types. Files,
// names, methods and fields of tests do not count.
const (
	maxPackageFiles = 30
	maxPackageNames = 45 // exported functions, types, constants and variables
	maxTypeMethods  = 25
	maxTypeFields   = 16
)

// sizeExceptions are the packages and types above a limit, with the reason. The test fails for one that is within the
// limits again.
var sizeExceptions = map[string]string{
	"agentsvc":                              "the domain's words: messages, tasks, events, errors, and what packages that do not import each other share",
	"agentsvc.Event":                        "one field for each kind of fact on the log of a task",
	"agentsvc/config":                       "one struct for each object of the configuration",
	"authz":                                 "a third of the names are the scopes and the built-in roles",
	"agentsvc/config.Agent":                 "the keys of an agent in the specification",
	"agentsvc/config.Config":                "the keys of a configuration in the specification",
	"agentsvc/config.Tool":                  "the keys of a tool in the specification",
	"agentsvc/config.validation":            "one method for each object of the configuration",
	"agentsvc/store.Run":                    "the columns of a run's row",
	"agentsvc/surface.Route":                "the properties of an endpoint",
	"agentsvc/tool/function.markdownWriter": "one method for each kind of element of a page",
	"agentsvc/tool/mcp.Options":             "the keys of an MCP server in the specification",
	"cmd/stoa/server/metrics.Recorder":      "one method for each kind of event",
	"tenancy":                               "a third of the names are the parts of the service, and what changes each of them",
	"cmd/stoa":                              "one file for each command, and the client that they share",
	"cmd/stoa.commands":                     "one field for each command",
	"cmd/stoa/server.Flags":                 "the flags of stoa serve",
	"tenancy/db.sqliteEngine":               "implements the engine and the driver's hooks",
}

// packageSize counts what the limits are about.
type packageSize struct {
	files, names    int
	methods, fields map[string]int // by type
}

// TestPlanSizes checks that packages and types stay within the limits, except for sizeExceptions.
func TestPlanSizes(t *testing.T) {
	t.Parallel()
	sizes := map[string]*packageSize{}
	for _, f := range listGoFiles(t) {
		if f.isTest || isTestPackage(f.folder) || strings.HasPrefix(f.folder, "bench") {
			continue
		}
		if sizes[f.folder] == nil {
			sizes[f.folder] = &packageSize{methods: map[string]int{}, fields: map[string]int{}}
		}
		sizes[f.folder].addFile(f.tree)
	}
	large := map[string]bool{}
	report := func(name, what string, got, most int) {
		if got <= most {
			return
		}
		large[name] = true
		if sizeExceptions[name] == "" {
			t.Errorf("%s has %d %s, at most %d are allowed: split it, or give the reason in sizeExceptions of cmd/stoa/plan_sizes_test.go", name, got, what, most)
		}
	}
	for folder, size := range sizes {
		report(folder, "files", size.files, maxPackageFiles)
		report(folder, "exported names", size.names, maxPackageNames)
		for name, n := range size.methods {
			report(folder+"."+name, "methods", n, maxTypeMethods)
		}
		for name, n := range size.fields {
			report(folder+"."+name, "fields", n, maxTypeFields)
		}
	}
	for name := range sizeExceptions {
		if !large[name] {
			t.Errorf("%s is within the limits: remove it from sizeExceptions", name)
		}
	}
}

// addFile counts the declarations of a file.
func (s *packageSize) addFile(file *ast.File) {
	s.files++
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv != nil {
				s.methods[receiverType(decl.Recv.List[0].Type)]++
			} else if decl.Name.IsExported() {
				s.names++
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				s.addSpec(spec)
			}
		}
	}
}

// addSpec counts a declared type, or the exported constants and variables.
func (s *packageSize) addSpec(spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			if name.IsExported() {
				s.names++
			}
		}
	case *ast.TypeSpec:
		if spec.Name.IsExported() {
			s.names++
		}
		structure, ok := spec.Type.(*ast.StructType)
		if !ok {
			return
		}
		for _, field := range structure.Fields.List {
			s.fields[spec.Name.Name] += max(1, len(field.Names)) // an embedded field has no name
		}
	}
}

// receiverType returns the name of a receiver's type, without pointer and type parameters.
func receiverType(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiverType(of.X)
	case *ast.IndexExpr:
		return receiverType(of.X)
	case *ast.IndexListExpr:
		return receiverType(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}

// TestPlanNamesPackages checks that the tables of the plan name no package that does not exist.
func TestPlanNamesPackages(t *testing.T) {
	t.Parallel()
	requireFolder := func(table, name string) {
		if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(name))); err != nil {
			t.Errorf("%s names %s: %v", table, name, err)
		}
	}
	for name := range layers {
		requireFolder("layers", name)
	}
	for _, rules := range dependencyRules {
		for _, rule := range rules {
			if name := strings.TrimSuffix(strings.TrimSuffix(rule, "(test)"), "/..."); name != "*" {
				requireFolder("dependencyRules", name)
			}
		}
	}
}
