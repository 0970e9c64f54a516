package charttest

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// requireProgram skips a test whose program is not on this machine, except where everything is required.
func requireProgram(t *testing.T, program, debianPackage string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	if os.Getenv("STOA_TEST_REQUIRE") != "" {
		t.Fatalf("%s is not on this machine", program)
	}
	fmt.Fprintf(os.Stdout, "    ATTENTION: %s: NOT TESTED: %s (Debian package %s) is not on this machine\n", t.Name(), program, debianPackage)
	t.SkipNow()
}

// run runs a command with further variables and fails the test with what it wrote.
func run(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), env...)
	if written, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s %v: %v\n%s", name, args, err, written)
	}
}
