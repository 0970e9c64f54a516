package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestBuildProgress runs the script by which make build shows its progress, over a command that prints what a build does:
// it has a line before the command does anything, one for each hundred packages, everything that is no package's name,
// and the command's status.
func TestBuildProgress(t *testing.T) {
	t.Parallel()
	const build = `read -r _ <&3; echo 'go: downloading example.com/m v1.0.0' >&2; for i in $(seq 199); do echo "example.com/m/p$i" >&2; done
echo 'm.go:1:1: undefined: x' >&2; echo out; exit 3`
	cmd := exec.CommandContext(t.Context(), "../../.ci/progress", "bash", "-c", build)
	first, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	// The command waits until the test has read the first line.
	gate, release, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, gate)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = gate.Close()
	line := make([]byte, 256)
	n, err := first.Read(line)
	if err != nil || !strings.HasPrefix(string(line[:n]), "compiling what is not in the cache\n") {
		t.Errorf("it begins with %q, %v", line[:n], err)
	}
	if _, err := release.WriteString("go on\n"); err != nil {
		t.Error(err)
	}
	_ = release.Close()
	var rest bytes.Buffer
	if _, err := rest.ReadFrom(first); err != nil {
		t.Error(err)
	}
	var failed *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &failed) || failed.ExitCode() != 3 {
		t.Errorf("it ends with %v, want the command's status 3", err)
	}
	want := "1 modules fetched, 99 packages compiled\n1 modules fetched, 199 packages compiled\nm.go:1:1: undefined: x\n"
	if got := rest.String(); got != want || out.String() != "out\n" {
		t.Errorf("it shows %q and %q, want %q", got, out.String(), want)
	}
}
