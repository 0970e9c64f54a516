// Package faults_test breaks real stoa processes on purpose and looks from outside whether they keep their promises.
// A cluster is one to three processes on a database, each dependency behind a proxy that can cut, delay and swallow
// what passes; models and the tool that records side effects live in the test. What a client was told (history), what
// the recorder saw, what the event log says over the API and, where nothing else can show it, the rows themselves
// must agree.
//
// The tests are called after the faults of docs/reliability.md: TestF2... breaks what its row F2 says. `make test`
// runs short forms, `make faults` (build tag faults) all of it. These variables of the environment choose how much:
//
//	STOA_FAULTS_SEED     what random choices begin with; each run prints its own
//	STOA_FAULTS_KILLS    how many kills TestKills makes (1000; short: 15)
//	STOA_FAULTS_ROLLS    how many rolling restarts TestF19Rolls makes (20; short: 1)
//	STOA_FAULTS_NEMESIS  how long TestNemesis runs (3m; short: 6s)
//	STOA_FAULTS_READERS  how many readers TestF15Slow has (1000)
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

// buildDir is where binaries and what belongs to no single test lie.
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
		_ = parallel.Value.Set("4") // they wait more than they compute
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

// requireFull skips a test that `make test` has no time for.
func requireFull(t *testing.T) {
	t.Helper()
	if !isFull {
		t.Skip("runs in make faults only")
	}
}

// readCount reads how much of something is to be done.
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

// newRand returns the random choices of a test and prints what they began with.
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

// reportf prints a figure, whether the test fails or not.
func reportf(t *testing.T, format string, args ...any) {
	t.Helper()
	fmt.Fprintf(os.Stdout, "    %s: %s\n", t.Name(), fmt.Sprintf(format, args...))
}

// reportSkipped says loudly what a test does not show.
func reportSkipped(t *testing.T, format string, args ...any) {
	t.Helper()
	reportf(t, "LEFT OUT: "+format, args...)
}

// A build is a way to make the program.
type build struct {
	name    string
	overlay func(root string) (map[string]string, error) // files to replace or to add, by path; nil: none
	once    sync.Once
	path    string
	err     error
}

// The programs: as it is, with a clock that STOA_FAULTS_CLOCK moves, and as the next version would be, whose schema has
// one more migration.
var (
	plainBuild  = &build{name: "stoa"}
	skewedBuild = &build{name: "stoa-skewed", overlay: skewClock}
	nextBuild   = &build{name: "stoa-younger", overlay: addMigration}
)

// programPath returns the path of the built program.
func (b *build) programPath(t testing.TB) string {
	t.Helper()
	b.once.Do(func() { b.path, b.err = b.compileProgram() })
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

// skewClock has every reading of the wall clock moved by STOA_FAULTS_CLOCK seconds, in all of the program: the clock of
// a replica is wrong for each of its parts alike. The monotonic clock goes on as it is.
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

// addMigration adds testdata/next.sql behind the last migration of PostgreSQL.
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
