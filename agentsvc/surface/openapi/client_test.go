package openapi_test

import (
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/surface/openapi"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/tenancy/db/dbtest"
)

// TestConsoleTypes checks that the types with which the console calls the API are those of the document. The flag -update,
// which package surfacetest has, writes them.
func TestConsoleTypes(t *testing.T) {
	t.Parallel()
	tools := os.Getenv("STOA_TEST_API_CLIENT")
	if tools == "" {
		dbtest.SkipMissing(t, "without STOA_TEST_API_CLIENT (the folder that .ci/api-client prints) the types of the console are not compared with the OpenAPI document")
	}
	raw, _ := buildDocument(t)
	folder, committed := t.TempDir(), "../../../web/src/openapi.d.ts"
	document, generated := filepath.Join(folder, "api.json"), filepath.Join(folder, "api.d.ts")
	if err := os.WriteFile(document, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join(tools, "node_modules/openapi-typescript/bin/cli.js"), document, "-o", generated)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want, err := os.ReadFile(generated)
	if err != nil {
		t.Fatal(err)
	}
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(committed, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(committed)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(got) {
		t.Errorf("%s is not what the document generates: run make web", committed)
	}
}

// TestGeneratedClient generates a client from the server's own document, compiles a program that uses it, and runs the
// program.
func TestGeneratedClient(t *testing.T) {
	t.Parallel()
	tools := os.Getenv("STOA_TEST_API_CLIENT")
	if tools == "" {
		dbtest.SkipMissing(t, "without STOA_TEST_API_CLIENT (the folder that .ci/api-client prints) no client is generated from the OpenAPI document")
	}
	h := surfacetest.New(t, surfacetest.Options{}, newRoutes)
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS("testdata/client")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(tools, "node_modules"), filepath.Join(folder, "node_modules")); err != nil {
		t.Fatal(err)
	}
	_, document := h.Do(t, http.MethodGet, openapi.Path, "", nil)
	if err := os.WriteFile(filepath.Join(folder, "api.json"), []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	var out []byte
	for _, args := range [][]string{
		{"node_modules/openapi-typescript/bin/cli.js", "api.json", "-o", "api.d.ts"}, {"node_modules/typescript/bin/tsc", "-p", "."}, {"client.js", h.URL, surfacetest.Secret},
	} {
		cmd := exec.CommandContext(t.Context(), "node", args...)
		cmd.Dir, cmd.Stderr = folder, t.Output()
		var err error
		if out, err = cmd.Output(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	var got map[string]any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	want := map[string]any{
		"created": []any{"shop", "active"}, "sent": "TASK_STATE_COMPLETED", "read": []any{true, 1.0}, "listed": []any{[]any{true}, 1.0},
		"streamed": []any{"TASK_STATE_SUBMITTED", true}, "called": []any{"completed", []any{true}},
		"a2a": []any{"TASK_STATE_COMPLETED", "TASK_STATE_COMPLETED", "completed"}, "tool": []any{false, "You said: hello"}, "mixed": -32602.0, "unknown": -32601.0,
		"waiting": []any{[]any{true, 1.0}}, "approved": true, "config": []any{true, 2.0, 412.0},
		"refused": []any{400.0, []any{"agents.assistant.llm"}}, "uploaded": []any{202.0, "created", "The warranty is two years."},
		"usage": []any{1.0, []any{"assistant"}}, "tag": true, "updated": "The shop", "late": []any{412.0, "FAILED_PRECONDITION"},
		"misspelled": []any{400.0, "query"}, "removed": []any{204.0, 404.0, "NOT_FOUND"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the client saw (-want +got):\n%s", diff)
	}
}
