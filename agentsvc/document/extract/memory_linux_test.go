package extract_test

import (
	"strings"
	"syscall"
	"testing"

	"stoa/agentsvc/document/extract"
)

// TestMemoryOfHelper checks that a helper never had more memory than its bound. All
// helpers that run meanwhile have the same bound.
func TestMemoryOfHelper(t *testing.T) {
	r := newReader(t)
	r.SetHelper("memory", longTimeout)
	_, err := r.Read(t.Context(), "", "a.md", "", strings.NewReader("text"))
	requireProblem(t, err, extract.TooComplex)
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err != nil {
		t.Fatal(err)
	}
	const programBytes = 256 << 20 // of the executable, which is mapped and not private
	if most := usage.Maxrss << 10; most > extract.MaxDataBytes+programBytes {
		t.Errorf("a helper had %d MiB", most>>20)
	}
}
