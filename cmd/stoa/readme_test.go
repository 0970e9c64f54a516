package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"stoa/cmd/stoa/stoatest"
)

// TestReadme runs the commands of the README's tour in a shell, unchanged but for the port, on each engine.
func TestReadme(t *testing.T) {
	t.Parallel()
	onEachProcessDatabase(t, runReadmeTour)
}

func runReadmeTour(t *testing.T, dir, database string) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var steps string
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(readme), -1) {
		if strings.Contains(m[1], "stoa app create acme") {
			steps = m[1]
		}
	}
	if steps == "" {
		t.Fatal("the README has no tour")
	}
	if err := os.Symlink(filepath.Join(root, "examples"), filepath.Join(dir, "examples")); err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, dir, "--config", "examples/default.yaml", "--database", database)
	sh := exec.Command("bash", "-euo", "pipefail")
	sh.Dir = dir
	sh.Stdin = strings.NewReader(strings.ReplaceAll(steps, "http://localhost:8080", p.url))
	sh.Env = stoatest.Environment("STOA_SERVER=" + p.url)
	out, err := sh.CombinedOutput()
	if err != nil {
		t.Fatalf("the tour ends with %v:\n%s", err, out)
	}
	for _, want := range []string{
		"acme created", "globex created", "welcome to Acme", "594 dollars",
		`"type":"task.status_update"`, `"state":"submitted"`, `"state":"working"`, `"state":"completed"`,
		`"code":-32001`,
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the tour does not say %s:\n%s", want, out)
		}
	}
}
