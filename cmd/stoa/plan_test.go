package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// modulePath is the prefix of the import path of every package of this module.
const modulePath = "stoa"

// layers is the plan of the packages (docs/architecture.md). A package imports packages on lower layers only;
// packages on one layer do not import each other, except in external test packages.
var layers = map[string]int{
	"cmd/stoa": 15, "cmd/stoa/faults": 15, "cmd/stoa/doctor": 14, "cmd/stoa/server": 13,
	"cmd/stoa/server/metrics": 10, "cmd/stoa/server/otlp": 10, "cmd/stoa/server/listener": 10, "cmd/stoa/server/systemd": 10,
	"deploy": 0, "migrations": 0, "tenancy/db": 0, "tenancy/db/batchsize": 0, "tenancy/signal": 0, "tenancy/grant": 0, "tenancy/keyring": 0,
	"tenancy/audit": 1, "tenancy/db/backup": 1,
	"tenancy":        2,
	"tenancy/router": 3, "tenancy/runtimecache": 3, "tenancy/apikey": 3, "tenancy/transfer": 3,
	"authz/jwks": 3, "authz": 4,
	"ratelimit":      3,
	"billing":        7,
	"billing/amount": 1, "billing/calendar": 1, "billing/spreadsheet": 1,
	"billing/change": 2,
	"billing/price":  3,
	"billing/usage":  4, "billing/ledger": 4, "billing/party": 4,
	"billing/budget": 5, "billing/invoice": 5,
	"billing/export":      6,
	"billing/export/file": 7, "billing/export/webhook": 7, "billing/export/stripe": 7,
	"agentsvc/processor": 1,
	"agentsvc/duration":  0,
	"agentsvc/temporary": 0,
	"agentsvc":           0,
	"agentsvc/trail":     2,
	"agentsvc/pattern":   2,
	"agentsvc/capacity":  2,
	"agentsvc/config":    3, "agentsvc/config/document": 2, "agentsvc/config/configfile": 4, "agentsvc/config/redact": 4,
	"agentsvc/document": 1, "agentsvc/document/quality": 1, "agentsvc/document/chunk": 2, "agentsvc/document/extract": 3, "agentsvc/document/corpus": 4, "agentsvc/document/indexing": 6, "agentsvc/document/retrieval": 6,
	"agentsvc/egress":   2,
	"agentsvc/sandbox":  2,
	"agentsvc/embedder": 3, "agentsvc/embedder/openai": 4, "agentsvc/embedder/ollama": 4, "agentsvc/embedder/cohere": 4,
	"agentsvc/vectorstore":               2,
	"agentsvc/vectorstore/chromem":       3,
	"agentsvc/document/source":           4,
	"agentsvc/document/source/directory": 5,
	"agentsvc/document/source/sqltable":  5,
	"agentsvc/document/source/api":       5,
	"agentsvc/document/source/mcpparser": 5,
	"agentsvc/store/receiver":            3,
	"agentsvc/store/vault":               3,
	"agentsvc/store/callcancel":          3,
	"agentsvc/store/deadletter":          3,
	"agentsvc/embedder/hashing":          4,
	"agentsvc/vectorstore/remote":        3,
	"agentsvc/vectorstore/qdrant":        4,
	"agentsvc/vectorstore/pinecone":      4,
	"agentsvc/vectorstore/weaviate":      4,
	"agentsvc/vectorstore/milvus":        4,
	"agentsvc/vectorstore/chroma":        4,
	"agentsvc/fleet":                     4,
	"agentsvc/store":                     4, "agentsvc/store/leader": 4, "agentsvc/store/queuestats": 4, "agentsvc/store/quota": 4, "agentsvc/store/toolpin": 4,
	"agentsvc/queue": 5,
	"agentsvc/task":  5,
	"agentsvc/llm":   4, "agentsvc/llm/scripted": 5, "agentsvc/llm/upstream": 5,
	"agentsvc/llm/anthropic": 6, "agentsvc/llm/openai": 6, "agentsvc/llm/gemini": 6, "agentsvc/llm/ollama": 6,
	"agentsvc/tool": 4, "agentsvc/tool/mcp": 5, "agentsvc/tool/command": 5, "agentsvc/tool/function": 5,
	"agentsvc/guardrail": 4, "agentsvc/notify": 5,
	"agentsvc/session": 5, "agentsvc/memory": 5, "agentsvc/words": 0,
	"agentsvc/trigger": 5, "agentsvc/retention": 5,
	"agentsvc/agent":   6,
	"agentsvc/runner":  7,
	"agentsvc/runtime": 8,
	"agentsvc/surface": 9,

	// What package surface is made of.
	"agentsvc/surface/encode": 3, "agentsvc/surface/tlscert": 4, "agentsvc/surface/response": 4,
	"agentsvc/surface/sse": 5, "agentsvc/surface/idempotency": 5,
	"agentsvc/surface/apierror": 6,
	"agentsvc/surface/decode":   7, "agentsvc/surface/crossorigin": 7, "agentsvc/surface/stream": 7,
	"agentsvc/surface/requestbody": 8,
	// What several protocols share.
	"agentsvc/surface/jsonrpc": 10, "agentsvc/surface/agentcard": 10, "agentsvc/surface/mutation": 10,
	"agentsvc/surface/ext": 11, "agentsvc/surface/v1": 11,
	"agentsvc/surface/a2a": 11, "agentsvc/surface/a2agrpc": 12,
	"agentsvc/surface/openai": 11, "agentsvc/surface/mcp": 11, "agentsvc/surface/openapi": 11,
	"agentsvc/surface/admin": 11, "agentsvc/surface/billingapi": 11, "agentsvc/surface/tenantapi": 11, "agentsvc/surface/webhook": 11,
	"agentsvc/surface/documents": 11,
	"web":                        11,
}

// topFolders are the top-level folders that may contain Go. bench is a module of its own.
var topFolders = []string{"cmd", "tenancy", "agentsvc", "authz", "billing", "ratelimit", "migrations", "web", "deploy", "bench"}

// dependencyRules lists which packages may import a third-party module: the package itself, every package below one
// that ends in "/...", any package for "*". With "(test)" behind it a package may in its tests. The longest module
// path that matches an import decides.
var dependencyRules = map[string][]string{
	"code.dny.dev/ssrf":                  {"agentsvc/egress"},
	"github.com/a2aproject/a2a-go":       {"agentsvc/surface/a2a", "agentsvc/surface/a2agrpc", "cmd/stoa(test)"},
	"github.com/a2aproject/a2a-go/v2":    {"agentsvc/surface/a2a", "agentsvc/surface/a2agrpc", "agentsvc/agent", "cmd/stoa(test)", "cmd/stoa/faults(test)"},
	"github.com/alecthomas/kong":         {"cmd/stoa"},
	"github.com/anthropics/":             {"agentsvc/llm/anthropic"},
	"github.com/bmatcuk/doublestar/v4":   {"*"},
	"github.com/casbin/":                 {"authz"},
	"github.com/cenkalti/backoff/v5":     {"*"},
	"github.com/clipperhouse/uax29/v2":   {"agentsvc/document/chunk"},
	"github.com/coder/websocket":         {"agentsvc/surface", "agentsvc/surface/...(test)", "cmd/stoa(test)", "cmd/stoa/faults(test)"},
	"github.com/coreos/go-oidc/v3":       {"authz"},
	"github.com/fsnotify/fsnotify":       {"agentsvc/config/configfile", "agentsvc/document/source/directory"},
	"github.com/gabriel-vasile/mimetype": {"agentsvc/document/extract"},
	"github.com/go-sql-driver/mysql":     {"tenancy/db/..."},
	"github.com/go-chi/chi/v5":           {"agentsvc/surface/...", "cmd/stoa"},
	"github.com/go-jose/go-jose/v4":      {"authz", "authz/jwks", "authz/jwks/jwkstest"},
	"github.com/go-json-experiment/json": {"agentsvc/store", "agentsvc/tool"},
	"github.com/golang-migrate/migrate/": {"migrations"},
	"github.com/google/go-cmp":           {"*(test)"},
	"github.com/google/uuid":             {"*"},
	"github.com/invopop/jsonschema":      {"agentsvc/config(test)"},
	"github.com/jackc/pgx/v5":            {"tenancy/db/...", "tenancy/signal", "migrations", "cmd/stoa/faults(test)"},
	"github.com/joho/godotenv":           {"agentsvc/config/configfile"},
	"github.com/kelseyhightower/envconfig": {
		"cmd/stoa/server",
	},
	"github.com/landlock-lsm/go-landlock": {"agentsvc/sandbox"},
	"github.com/ledongthuc/pdf":           {"agentsvc/document/extract"},
	"github.com/maypok86/otter/v2":        {"*"},
	"github.com/modelcontextprotocol/go-sdk": {
		"agentsvc/tool/mcp", "agentsvc/document/source/mcpparser(test)", "agentsvc/runtime(test)", "agentsvc/surface/mcp(test)", "cmd/stoa(test)",
	},
	"github.com/netresearch/go-cron":         {"agentsvc/trigger"},
	"github.com/openai/openai-go/v3":         {"agentsvc/llm/openai", "agentsvc/embedder/openai", "agentsvc/surface/openai(test)"},
	"github.com/pgvector/pgvector-go":        {"agentsvc/document/corpus"},
	"github.com/philippgille/chromem-go":     {"agentsvc/vectorstore/chromem"},
	"github.com/prometheus/":                 {"cmd/stoa/server/metrics"},
	"github.com/qdrant/go-client":            {"agentsvc/vectorstore/qdrant", "agentsvc/vectorstore/remote/remotetest"},
	"github.com/redis/go-redis/v9":           {"tenancy/signal", "ratelimit", "cmd/stoa/server", "cmd/stoa/doctor", "cmd/stoa(test)", "agentsvc/task(test)"},
	"github.com/rogpeppe/go-internal":        {"*(test)"},
	"github.com/santhosh-tekuri/jsonschema":  {"agentsvc/config", "agentsvc/tool", "agentsvc/agent", "agentsvc/surface/openapi(test)"},
	"github.com/schollz/progressbar/v3":      {"cmd/stoa"},
	"github.com/stripe/stripe-go/v85":        {"billing/export/stripe"},
	"github.com/tiktoken-go/tokenizer/codec": {"agentsvc/session"},
	"github.com/ulule/limiter/v3":            {"ratelimit"},
	"github.com/xuri/excelize/v2":            {"agentsvc/document/extract"},
	"github.com/yuin/goldmark":               {"agentsvc/document/extract"},
	"go.opentelemetry.io/otel":               {"agentsvc/trail", "agentsvc/document/indexing", "tenancy/db", "agentsvc/surface", "agentsvc/runtime", "cmd/stoa/server/..."},
	"go.opentelemetry.io/contrib":            {"cmd/stoa/server/otlp"},
	"go.opentelemetry.io/otel/sdk":           {"cmd/stoa/server/metrics", "cmd/stoa/server/otlp", "*(test)"},
	"go.opentelemetry.io/proto/otlp":         {"cmd/stoa(test)"},
	"google.golang.org/genproto":             {"agentsvc/surface/a2agrpc"},
	"google.golang.org/grpc":                 {"agentsvc/surface/a2agrpc", "agentsvc/vectorstore/remote", "agentsvc/vectorstore/remote/remotetest", "agentsvc/vectorstore/qdrant(test)", "cmd/stoa(test)", "cmd/stoa/faults(test)"},
	"google.golang.org/protobuf":             {"agentsvc/surface/a2agrpc", "agentsvc/vectorstore/remote", "cmd/stoa(test)"},
	"go.opentelemetry.io/otel/exporters":     {"cmd/stoa/server/metrics", "cmd/stoa/server/otlp"},
	"go.uber.org/goleak":                     {"*(test)"},
	"go.yaml.in/yaml/v3":                     {"agentsvc/config", "agentsvc/config/document", "cmd/stoa", "cmd/stoa/faults(test)", "deploy/deploytest"},
	"golang.org/x/crypto":                    {"tenancy/transfer"},
	"golang.org/x/net":                       {"agentsvc/guardrail", "agentsvc/tool/function", "agentsvc/document/extract", "agentsvc/surface/...(test)"},
	"golang.org/x/sync":                      {"*"},
	"golang.org/x/sys":                       {"*"},
	"golang.org/x/term":                      {"cmd/stoa"},
	"golang.org/x/text":                      {"*"},
	"golang.org/x/time":                      {"agentsvc/runner", "agentsvc/surface/a2agrpc"},
	"google.golang.org/genai":                {"agentsvc/llm/gemini"},
	"modernc.org/libc":                       {"tenancy/db"}, // the sqlite driver's functions have parameters of its types
	"modernc.org/sqlite":                     {"tenancy/db/...", "migrations", "cmd/stoa/faults(test)"},
	"pgregory.net/rapid":                     {"*(test)"},
}

// TestPlanLayers checks that every folder with Go has a layer and that packages import lower layers only.
func TestPlanLayers(t *testing.T) {
	t.Parallel()
	for _, f := range listGoFiles(t) {
		for _, violation := range findLayerViolations(f) {
			t.Error(violation)
		}
	}
}

// TestPlanDependencies checks that third-party modules are imported only where dependencyRules allows it.
func TestPlanDependencies(t *testing.T) {
	t.Parallel()
	for _, f := range listGoFiles(t) {
		for _, violation := range findDependencyViolations(f) {
			t.Error(violation)
		}
	}
}

// TestPlanTopFolders checks that top-level folders outside the plan contain no Go.
func TestPlanTopFolders(t *testing.T) {
	t.Parallel()
	for _, f := range listGoFiles(t) {
		topFolder, _, _ := strings.Cut(f.folder, "/")
		if !slices.Contains(topFolders, topFolder) {
			t.Errorf("%s: Go lives below %s only; is there no package for it yet?", f.path, strings.Join(topFolders, ", "))
		}
	}
}

// TestPlanEnvironment checks that only cmd reads the process's environment: other packages get their settings as
// arguments.
func TestPlanEnvironment(t *testing.T) {
	t.Parallel()
	for _, f := range listGoFiles(t) {
		if strings.HasPrefix(f.folder, "cmd/") || f.isTest || isTestPackage(f.folder) {
			continue
		}
		for _, name := range findEnvironmentReads(f) {
			t.Errorf("%s must not call %s: only cmd/stoa reads the environment, and hands on what others need", f.path, name)
		}
	}
}

// TestPlanMessages checks that each rule can fail, with a message in a sentence.
func TestPlanMessages(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		file goFile
		want string
	}{
		{"lower layer", newGoFile("agentsvc/task/task.go", "stoa/agentsvc/store"), ""},
		{"higher layer", newGoFile("agentsvc/task/task.go", "stoa/agentsvc/runner"),
			"agentsvc/task/task.go: agentsvc/task (layer 5) must not import agentsvc/runner (layer 7): a package imports packages on lower layers only"},
		{"higher layer from outside", newGoFile("agentsvc/task/task_test.go", "stoa/agentsvc/runner"),
			"agentsvc/task/task_test.go: agentsvc/task (layer 5) must not import agentsvc/runner (layer 7): a package imports packages on lower layers only"},
		{"same layer", newGoFile("agentsvc/task/task.go", "stoa/agentsvc/queue"),
			"agentsvc/task/task.go: agentsvc/task and agentsvc/queue are both on layer 5: packages on one layer do not import each other (a test in a package agentsvc/task_test may)"},
		{"same layer from outside", newGoFile("agentsvc/task/task_test.go", "stoa/agentsvc/queue"), ""},
		{"own package from outside", newGoFile("agentsvc/task/task_test.go", "stoa/agentsvc/task"), ""},
		{"no layer", newGoFile("agentsvc/util/util.go"),
			"agentsvc/util/util.go: agentsvc/util has no layer: give it a row in the table layers of cmd/stoa/plan_test.go"},
		{"import of no layer", newGoFile("agentsvc/task/task.go", "stoa/agentsvc/util"),
			"agentsvc/task/task.go: agentsvc/util has no layer: give it a row in the table layers of cmd/stoa/plan_test.go"},
		{"test package in a test", newGoFile("agentsvc/store/task_test.go", "stoa/tenancy/db/dbtest"), ""},
		{"test package in a package", newGoFile("agentsvc/store/task.go", "stoa/tenancy/db/dbtest"),
			"agentsvc/store/task.go: agentsvc/store must not import tenancy/db/dbtest outside its tests: that package is for tests"},
		{"test package on its parent", newGoFile("tenancy/db/dbtest/dbtest.go", "stoa/tenancy/db", "stoa/migrations"), ""},
		{"test package on a higher layer", newGoFile("tenancy/db/dbtest/dbtest.go", "stoa/tenancy"),
			"tenancy/db/dbtest/dbtest.go: tenancy/db/dbtest (layer 0) must not import tenancy (layer 2): a package imports packages on lower layers only"},

		{"dependency where it is allowed", newGoFile("authz/policy.go", "github.com/casbin/casbin/v2/model"), ""},
		{"dependency elsewhere", newGoFile("agentsvc/task/task.go", "github.com/casbin/casbin/v2"),
			"agentsvc/task/task.go: github.com/casbin/casbin/v2 may be imported by authz only, not by agentsvc/task"},
		{"dependency below a package", newGoFile("agentsvc/surface/ext/routes.go", "github.com/go-chi/chi/v5"), ""},
		{"dependency of tests", newGoFile("agentsvc/task/task_test.go", "github.com/google/go-cmp/cmp"), ""},
		{"dependency of tests in a package", newGoFile("agentsvc/task/task.go", "github.com/google/go-cmp/cmp"),
			"agentsvc/task/task.go: github.com/google/go-cmp/cmp may be imported by *(test) only, not by agentsvc/task"},
		{"dependency of tests in a test package", newGoFile("agentsvc/llm/llmtest/llmtest.go", "github.com/google/go-cmp/cmp"), ""},
		{"unknown dependency", newGoFile("agentsvc/task/task.go", "example.com/left-pad"),
			"agentsvc/task/task.go: example.com/left-pad is an unknown dependency: give its module a row in the table dependencyRules of cmd/stoa/plan_test.go"},
		{"longest row wins", newGoFile("agentsvc/task/task.go", "go.opentelemetry.io/otel/sdk/trace"),
			"agentsvc/task/task.go: go.opentelemetry.io/otel/sdk/trace may be imported by cmd/stoa/server/metrics, cmd/stoa/server/otlp, *(test) only, not by agentsvc/task"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.Join(append(findLayerViolations(tt.file), findDependencyViolations(tt.file)...), "\n")
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestPlanDetectsEnvironment checks that a read of the environment is found under any import name.
func TestPlanDetectsEnvironment(t *testing.T) {
	t.Parallel()
	src := `package x
import ( host "os"; "syscall" )
var a = host.Getenv("A")
var b, _ = syscall.Getenv("B")
var c = host.LookupEnv
var d = host.Args`
	tree, err := parser.ParseFile(token.NewFileSet(), "x.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := findEnvironmentReads(goFile{tree: tree})
	if want := []string{"os.Getenv", "syscall.Getenv", "os.LookupEnv"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// findLayerViolations returns how f violates the layers.
func findLayerViolations(f goFile) []string {
	var violations []string
	addViolation := func(format string, args ...any) {
		violations = append(violations, f.path+": "+fmt.Sprintf(format, args...))
	}
	specific, ok := findLayer(f.folder)
	if !ok {
		addViolation("%s has no layer: give it a row in the table layers of cmd/stoa/plan_test.go", f.folder)
		return violations
	}
	for _, imported := range f.imports {
		folder, ok := strings.CutPrefix(imported, modulePath+"/")
		if !ok || folder == f.folder {
			continue
		}
		other, ok := findLayer(folder)
		switch {
		case !ok:
			addViolation("%s has no layer: give it a row in the table layers of cmd/stoa/plan_test.go", folder)
		case isTestPackage(folder) && !f.isTest && !isTestPackage(f.folder):
			addViolation("%s must not import %s outside its tests: that package is for tests", f.folder, folder)
		case other > specific:
			addViolation("%s (layer %d) must not import %s (layer %d): a package imports packages on lower layers only", f.folder, specific, folder, other)
		case other == specific && !f.isExternal && !f.mayImportSameLayer(folder):
			addViolation("%s and %s are both on layer %d: packages on one layer do not import each other (a test in a package %s_test may)",
				f.folder, folder, specific, f.folder)
		}
	}
	return violations
}

// mayImportSameLayer reports whether f may import a package on its own layer: a test helper package its parent and
// the migrations, a test any test helper package.
func (f goFile) mayImportSameLayer(folder string) bool {
	if isTestPackage(f.folder) && (folder == path.Dir(f.folder) || folder == "migrations") {
		return true
	}
	return isTestPackage(folder) && (f.isTest || isTestPackage(f.folder))
}

// findDependencyViolations returns how f violates dependencyRules.
func findDependencyViolations(f goFile) []string {
	var violations []string
	for _, imported := range f.imports {
		first, _, _ := strings.Cut(imported, "/")
		if first == modulePath || !strings.Contains(first, ".") {
			continue
		}
		folders, ok := findDependencyRule(imported)
		switch {
		case !ok:
			violations = append(violations, fmt.Sprintf("%s: %s is an unknown dependency: give its module a row in the table dependencyRules of cmd/stoa/plan_test.go",
				f.path, imported))
		case !slices.ContainsFunc(folders, f.matchesEntry):
			violations = append(violations, fmt.Sprintf("%s: %s may be imported by %s only, not by %s", f.path, imported, strings.Join(folders, ", "), f.folder))
		}
	}
	return violations
}

// matchesEntry reports whether an entry of dependencyRules applies to f.
func (f goFile) matchesEntry(entry string) bool {
	entry, tests := strings.CutSuffix(entry, "(test)")
	if tests && !f.isTest && !isTestPackage(f.folder) {
		return false
	}
	subpath, isTree := strings.CutSuffix(entry, "/...")
	return entry == "*" || entry == f.folder || isTree && (f.folder == subpath || strings.HasPrefix(f.folder, subpath+"/"))
}

// findDependencyRule returns the entries for the module that an import belongs to.
func findDependencyRule(imported string) ([]string, bool) {
	best := ""
	for m := range dependencyRules {
		under := imported == m || strings.HasPrefix(imported, strings.TrimSuffix(m, "/")+"/")
		if under && len(m) > len(best) {
			best = m
		}
	}
	return dependencyRules[best], best != ""
}

// isTestPackage reports whether a folder is a test helper package: its name is its parent's and "test", and it has
// its parent's layer.
func isTestPackage(folder string) bool {
	return path.Base(folder) == path.Base(path.Dir(folder))+"test"
}

func findLayer(folder string) (int, bool) {
	if isTestPackage(folder) {
		folder = path.Dir(folder)
	}
	n, ok := layers[folder]
	return n, ok
}

// findEnvironmentReads returns each use of the process's environment in f.
func findEnvironmentReads(f goFile) []string {
	readers := map[string][]string{
		"os":      {"Getenv", "LookupEnv", "Environ", "ExpandEnv"},
		"syscall": {"Getenv", "Environ"},
	}
	named := map[string]string{}
	for _, spec := range f.tree.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		if readers[imported] == nil {
			continue
		}
		named[imported] = imported
		if spec.Name != nil {
			delete(named, imported)
			named[spec.Name.Name] = imported
		}
	}
	var found []string
	ast.Inspect(f.tree, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := selector.X.(*ast.Ident); ok && slices.Contains(readers[named[x.Name]], selector.Sel.Name) {
			found = append(found, named[x.Name]+"."+selector.Sel.Name)
		}
		return true
	})
	return found
}

// goFile is one Go file of this module, whatever its build constraints.
type goFile struct {
	path       string // from the module's root, with slashes
	folder     string // its folder
	isTest     bool   // a _test.go file
	isExternal bool   // in an external _test package
	imports    []string
	tree       *ast.File
}

// newGoFile returns an invented file for the tests of the rules. A _test.go file is in an external test package.
func newGoFile(name string, imports ...string) goFile {
	test := strings.HasSuffix(name, "_test.go")
	return goFile{path: name, folder: path.Dir(name), isTest: test, isExternal: test, imports: imports}
}

// listGoFiles returns every Go file of this module, without those of nested modules. It parses them once.
func listGoFiles(t *testing.T) []goFile {
	t.Helper()
	files, err := parseGoFiles()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("there is no Go here: the plan was held against nothing")
	}
	return files
}

var parseGoFiles = sync.OnceValues(func() (files []goFile, err error) {
	root := filepath.Join("..", "..")
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return checkFolder(root, name, entry)
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		f, err := parseGoFile(name, filepath.ToSlash(relative))
		files = append(files, f)
		return err
	})
	return files, err
})

// checkFolder returns [fs.SkipDir] for a folder that the go command ignores.
func checkFolder(root, name string, entry fs.DirEntry) error {
	if name == root {
		return nil
	}
	base := entry.Name()
	if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "node_modules" {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

func parseGoFile(name, relative string) (goFile, error) {
	tree, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
	if err != nil {
		return goFile{}, err
	}
	f := goFile{path: relative, folder: path.Dir(relative), isTest: strings.HasSuffix(relative, "_test.go"), tree: tree}
	f.isExternal = f.isTest && strings.HasSuffix(tree.Name.Name, "_test")
	for _, spec := range tree.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return goFile{}, err
		}
		f.imports = append(f.imports, imported)
	}
	return f, nil
}
