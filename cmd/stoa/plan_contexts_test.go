package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"testing"
)

// contextKeys are the keys of values in contexts, by package, with the reason why the value is no parameter. A context
// carries deadline, cancellation and trace; anything else needs an interface of net/http or of a library between the
// two ends that passes nothing but a context. The test fails for a key that is gone.
var contextKeys = map[string]string{
	"agentsvc/llm/upstream.transportCallKey": "from a call to the RoundTripper, through the vendor's client library",
	"agentsvc/tool/mcp.exchangeKey":          "from a call to the RoundTripper, through the MCP client library",
	"agentsvc/surface.recordKey":             "from the outermost http.Handler to the route's, through net/http and the router; read for log lines as well",
	"agentsvc/surface/a2agrpc.callKey":       "from the interceptor to the method, through grpc",
	"agentsvc/trail.samplingRatioKey":        "trace: from the start of a span to the sampler, through OpenTelemetry",
	"cmd/stoa/server.runKey":                 "trace: from the start of a run to the handler of log lines, through slog",
}

// TestPlanContexts checks that values are put into contexts under contextKeys only.
func TestPlanContexts(t *testing.T) {
	t.Parallel()
	unused := maps.Clone(contextKeys)
	for _, f := range listGoFiles(t) {
		if f.isTest || isTestPackage(f.folder) {
			continue
		}
		for _, key := range findContextKeys(f) {
			name := f.folder + "." + key
			if contextKeys[name] == "" {
				t.Errorf("%s puts a value into a context under %s: pass it as a parameter or a field, or give the reason in contextKeys of cmd/stoa/plan_contexts_test.go", f.path, name)
			}
			delete(unused, name)
		}
	}
	for name := range unused {
		t.Errorf("contextKeys has %s, which no package uses", name)
	}
}

// findContextKeys returns the keys under which f puts values into contexts: the type of each key of context.WithValue,
// and the name of a type that implements a context's Value itself.
func findContextKeys(f goFile) (keys []string) {
	ast.Inspect(f.tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if called, ok := n.Fun.(*ast.SelectorExpr); ok && called.Sel.Name == "WithValue" && len(n.Args) == 3 {
				key := n.Args[1]
				if literal, ok := key.(*ast.CompositeLit); ok {
					key = literal.Type
				}
				keys = append(keys, types.ExprString(key))
			}
		case *ast.FuncDecl:
			// Other methods named Value, such as those of flags and of SQL drivers, have other parameters.
			if n.Recv != nil && n.Name.Name == "Value" && n.Type.Params.NumFields() == 1 && slices.Contains([]string{"any", "interface{}"}, types.ExprString(n.Type.Params.List[0].Type)) {
				keys = append(keys, receiverType(n.Recv.List[0].Type))
			}
		}
		return true
	})
	return keys
}

// TestPlanDetectsContexts checks that each way to put a value into a context is found.
func TestPlanDetectsContexts(t *testing.T) {
	t.Parallel()
	src := `package x
var a = context.WithValue(ctx, aKey{}, 1)
var b = stdctx.WithValue(ctx, bKey, 1)
func (c *carrier) Value(key any) any { return nil }
func (v value) Value() (driver.Value, error) { return nil, nil }`
	tree, err := parser.ParseFile(token.NewFileSet(), "x.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := findContextKeys(goFile{tree: tree}), []string{"aKey", "bKey", "carrier"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
