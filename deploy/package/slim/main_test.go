package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../../.."

// TestPrepare changes copies of the modules of go.mod: each text to be replaced is there, each package compiles, and the
// compressed vocabularies have the entries of the lists.
func TestPrepare(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flags, err := prepare(dir)
	if err != nil {
		t.Fatal(err)
	}
	// A second call replaces the folder.
	if _, err := prepare(dir); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(dir, outDir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	replaced := strings.Count(string(mod), "=> ./"+outDir+"/")
	if want := 5; replaced != want || len(flags) != 2 {
		t.Errorf("%d modules are replaced, want %d; the flags are %q", replaced, want, flags)
	}
	packages := []string{"github.com/alecthomas/kong", "github.com/casbin/govaluate", "github.com/google/go-cmp/cmp", "github.com/openai/openai-go/v3/packages/param", "text/template"}
	cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"build"}, flags...), packages...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if written, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the changed packages do not compile: %v\n%s", err, written)
	}
	for _, e := range tokenizerEncodings {
		checkVocabulary(t, filepath.Join(dir, outDir, strings.ReplaceAll(tokenizerModule, "/", "_"), "codec"), e)
	}
}

// TestUsersOfChangedLibraries runs the tests of what uses the changed libraries, against the changes: templates, roles and
// counts of tokens. The command line is tested with the packages.
func TestUsersOfChangedLibraries(t *testing.T) {
	t.Parallel()
	flags, err := prepare(root)
	if err != nil {
		t.Fatal(err)
	}
	tests := []string{"TestInvoiceText", "TestInvoiceForms", "TestCreditNoteText", "TestTemplateBounds", "TestRoles", "TestCustomRoles", "TestEncodings"}
	// With -trimpath most packages are those of make build.
	args := append(append([]string{"test", "-count=1", "-vet=off", "-trimpath"}, flags...), "-run", "^("+strings.Join(tests, "|")+")$")
	cmd := exec.CommandContext(t.Context(), "go", append(args, "./billing/invoice", "./agentsvc/trigger", "./authz", "./agentsvc/session")...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	written, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(written), "no tests to run") {
		t.Errorf("with the changed libraries: %v\n%s", err, written)
	}
}

// TestNameModules writes the modules into a list in place of their copies.
func TestNameModules(t *testing.T) {
	t.Parallel()
	var components []string
	for _, module := range listCopied() {
		folder := "./" + outDir + "/" + nameFolder(module)
		components = append(components, fmt.Sprintf("{\n  \"bom-ref\": \"pkg:golang/%s@(devel)?type=module\",\n  \"name\": \"%s\",\n  \"version\": \"(devel)\"\n}", folder, folder))
	}
	file := filepath.Join(t.TempDir(), "list.json")
	if err := os.WriteFile(file, []byte(`{"components": [`+strings.Join(components, ",")+`]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := nameModules(root, file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Components []struct {
			Ref           string `json:"bom-ref"`
			Name, Version string
			Pedigree      struct{ Notes string }
		}
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	for i, c := range list.Components {
		if want := listCopied()[i]; c.Name != want || !strings.HasPrefix(c.Version, "v") || c.Ref != "pkg:golang/"+want+"@"+c.Version+"?type=module" || c.Pedigree.Notes == "" {
			t.Errorf("the component of %s is %+v", want, c)
		}
	}
	if err := nameModules(root, file); err == nil {
		t.Error("a list without the copies is no error")
	}
}

// checkVocabulary compares a compressed vocabulary with the module's list.
func checkVocabulary(t *testing.T, dir string, e tokenizerEncoding) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", tokenizerModule)
	cmd.Dir = root
	found, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(found)), "codec", e.file+"_vocab.go"))
	if err != nil {
		t.Fatal(err)
	}
	compressed, err := os.ReadFile(filepath.Join(dir, e.file+"_vocab.gz"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint{}
	for line := range strings.Lines(string(list)) {
		quoted, id, ok := strings.Cut(strings.TrimSuffix(strings.TrimSpace(line), ","), `":`)
		if !ok {
			continue
		}
		token, err := strconv.Unquote(quoted + `"`)
		if err != nil {
			// The token itself has the separator.
			at := strings.LastIndex(line, `":`)
			quoted, id = strings.TrimSpace(line[:at]), strings.TrimSuffix(strings.TrimSpace(line[at+2:]), ",")
			if token, err = strconv.Unquote(quoted + `"`); err != nil {
				t.Fatal(err)
			}
		}
		n, err := strconv.ParseUint(strings.TrimSpace(id), 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		want[token] = uint(n)
	}
	if diff := cmp.Diff(want, readVocabulary(string(compressed), len(want))); diff != "" || len(want) < 100_000 {
		t.Errorf("the compressed vocabulary %s of %d tokens differs:\n%.2000s", e.file, len(want), diff)
	}
	if len(compressed) > len(list)/4 {
		t.Errorf("%s takes %d bytes compressed, %d as a list", e.file, len(compressed), len(list))
	}
}

// TestNoProvider requires that no command has a method which only the unchanged kong would call.
func TestNoProvider(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "cmd/stoa/*.go"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	provider := regexp.MustCompile(`(?m)^func \([^)]*\) Provide\w*\(.*`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if m := provider.Find(text); m != nil {
			t.Errorf("%s has %q, which the released binary does not call: adapt deploy/package/slim/changes.go", file, m)
		}
	}
}
