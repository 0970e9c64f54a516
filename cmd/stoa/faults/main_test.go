// Package faults_test injects faults into real stoa processes and checks their guarantees from outside. A [cluster]
// is one to three processes on a database, each dependency behind a [proxy] that can cut, delay and drop data; the
// model's server and the tool that records side effects ([recorder]) run in the test. What clients received
// ([history]), what the recorder received, the event log in the API and, for what the API does not show, the rows of
// the database must agree.
//
// The tests are named after the faults of docs/reliability.md: TestF2... injects the fault of its row F2. `make test`
// runs short forms, `make faults` (build tag faults) the long ones. These environment variables choose their size:
//
//	STOA_FAULTS_SEED     seed of random choices; each run prints its own
//	STOA_FAULTS_KILLS    kills of TestKills (1000; short: 15)
//	STOA_FAULTS_DOCUMENT_KILLS  kills of TestDocumentKills (200; short: 10), while it indexes
//	STOA_FAULTS_DOCUMENTS       documents (2000; short: 200)
//	STOA_FAULTS_VECTOR_KILLS      kills of TestVectorKills (50; short: 8), while it indexes
//	STOA_FAULTS_VECTOR_DOCUMENTS  documents of each kind of vector store (500; short: 80)
//	STOA_FAULTS_ROLLS    rolling restarts of TestF19Rolls (20; short: 1)
//	STOA_FAULTS_UPGRADES upgrades and returns of TestF19Upgrade (2)
//	STOA_FAULTS_OLD      program of the previous version, for TestF19Upgrade
//	STOA_FAULTS_NEMESIS  duration of TestNemesis (3m; short: 6s)
//	STOA_FAULTS_READERS  readers of TestF15Slow (1000)
package faults_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// buildDir is the folder of the binaries and of other files that tests share.
var buildDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "stoa-faults.")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	buildDir = dir
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == itoa(runtime.GOMAXPROCS(0)) {
		_ = parallel.Value.Set("4") // the tests wait more than they compute
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	if code == 0 {
		if err := goleak.Find(goleak.IgnoreTopFunction("os/signal.loop")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// requireFull skips a test in short form.
func requireFull(t *testing.T) {
	t.Helper()
	if !isFull {
		t.Skip("runs in make faults only")
	}
}

// readCount returns the size of a test from the environment variable name, else its default in the long or short
// form.
func readCount(t *testing.T, name string, long, short int) int {
	t.Helper()
	text := os.Getenv(name)
	switch {
	case text != "":
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			t.Fatalf("%s=%s is no number", name, text)
		}
		return n
	case isFull:
		return long
	}
	return short
}

// newRand returns a test's source of random choices and prints its seed.
func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("STOA_FAULTS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("STOA_FAULTS_SEED=%s is no number", text)
		}
	}
	reportf(t, "seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// reportf prints a measurement, whether the test fails or not.
func reportf(t *testing.T, format string, args ...any) {
	t.Helper()
	fmt.Fprintf(os.Stdout, "    %s: %s\n", t.Name(), fmt.Sprintf(format, args...))
}

// reportSkipped prints prominently what a test did not check.
func reportSkipped(t *testing.T, format string, args ...any) {
	t.Helper()
	reportf(t, "LEFT OUT: "+format, args...)
}

// build is a variant of the program.
type build struct {
	name    string
	overlay func(root string) (map[string]string, error) // files to replace or add, by path; nil = none
	once    sync.Once
	path    string
	err     error
}

// The variants of the program: unchanged, with a clock that STOA_FAULTS_CLOCK offsets, and like a next version, whose
// schema has one more migration.
var (
	plainBuild  = &build{name: "stoa"}
	skewedBuild = &build{name: "stoa-skewed", overlay: skewClock}
	nextBuild   = &build{name: "stoa-younger", overlay: addMigration}
)

// programPath builds the program at the first call and returns its path. `make test` has built the unchanged one:
// STOA_TEST_PROGRAM names it.
func (b *build) programPath(t testing.TB) string {
	t.Helper()
	b.once.Do(func() {
		if b.path = os.Getenv("STOA_TEST_PROGRAM"); b.path == "" || b != plainBuild {
			b.path, b.err = b.compileProgram()
		}
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.path
}

func (b *build) compileProgram() (string, error) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		return "", err
	}
	path := filepath.Join(buildDir, b.name)
	args := []string{"build", "-trimpath", "-o", path}
	if b.overlay != nil {
		files, err := b.overlay(root)
		if err != nil {
			return "", fmt.Errorf("%s: %w", b.name, err)
		}
		raw, err := json.Marshal(map[string]any{"Replace": files})
		if err != nil {
			return "", err
		}
		list := path + ".overlay.json"
		if err := os.WriteFile(list, raw, 0o600); err != nil {
			return "", err
		}
		args = append(args, "-overlay", list)
	}
	cmd := exec.Command("go", append(args, "./cmd/stoa")...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", b.name, err, out)
	}
	return path, nil
}

// skewClock returns an overlay in which every reading of the wall clock is offset by STOA_FAULTS_CLOCK seconds, in
// the whole program. The monotonic clock is unchanged.
func skewClock(string) (map[string]string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	source := filepath.Join(strings.TrimSpace(string(out)), "src", "time", "time.go")
	text, err := os.ReadFile(source)
	if err != nil {
		return nil, err
	}
	const reading = "\tsec, nsec, mono := runtimeNow()\n"
	if bytes.Count(text, []byte(reading)) != 1 || !bytes.Contains(text, []byte("func Now() Time {\n"+reading)) {
		return nil, fmt.Errorf("%s reads the clock otherwise than this test knows", source)
	}
	text = bytes.Replace(text, []byte(reading), []byte(reading+"\tsec += skew()\n"), 1)
	text = append(text, `
var skewOnce struct {
	known bool
	by    int64
}

func skew() int64 {
	if !skewOnce.known {
		text, _ := syscall.Getenv("STOA_FAULTS_CLOCK")
		by, negative := int64(0), false
		for _, c := range text {
			if c == '-' {
				negative = true
			} else {
				by = by*10 + int64(c-'0')
			}
		}
		if negative {
			by = -by
		}
		skewOnce.known, skewOnce.by = true, by
	}
	return skewOnce.by
}
`...)
	text = bytes.Replace(text, []byte("import (\n"), []byte("import (\n\t\"syscall\"\n"), 1)
	patched := filepath.Join(buildDir, "time.go")
	return map[string]string{source: patched}, os.WriteFile(patched, text, 0o600)
}

// addMigration returns an overlay with testdata/next.sql after the last migration of PostgreSQL.
func addMigration(root string) (map[string]string, error) {
	there, err := filepath.Glob(filepath.Join(root, "migrations/postgres/*.up.sql"))
	if err != nil || len(there) == 0 {
		return nil, fmt.Errorf("there are no migrations: %w", err)
	}
	next, err := filepath.Abs("testdata/next.sql")
	if err != nil {
		return nil, err
	}
	last, _, _ := strings.Cut(filepath.Base(there[len(there)-1]), "_")
	n, err := strconv.Atoi(last)
	if err != nil {
		return nil, err
	}
	added := filepath.Join(root, "migrations/postgres", fmt.Sprintf("%04d_faults.up.sql", n+1))
	return map[string]string{added: next}, nil
}
