//go:build faults

package faults_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"stoa/tenancy/db/dbtest"
)

// previousPrograms has the program of the previous version once it was found or built.
var previousPrograms struct {
	once sync.Once
	build
	revision string
}

// previousBuild returns the program of the previous version and its name: that of STOA_FAULTS_OLD, else that of the newest
// tag of a version below this commit, else that of the commit in testdata/previous. It is built once for each commit and
// kept in the user's cache. The test is skipped, which it prints, if there is none.
func previousBuild(t testing.TB) (old *build, revision string) {
	t.Helper()
	p := &previousPrograms
	p.once.Do(func() {
		p.name = "stoa-previous"
		p.path, p.revision, p.err = findPrevious()
		p.build.once.Do(func() {})
	})
	switch {
	case errors.Is(p.err, errNoPrevious):
		dbtest.SkipMissing(t, p.err.Error())
	case p.err != nil:
		t.Fatal(p.err)
	}
	return &p.build, p.revision
}

// errNoPrevious means that the program of the previous version cannot be had here.
var errNoPrevious = errors.New("there is no program of the previous version")

// findPrevious returns the path of the previous version's program, and the tag or commit that it was built from. It is
// compiled if it is not in the cache.
func findPrevious() (path, revision string, err error) {
	if path := os.Getenv("STOA_FAULTS_OLD"); path != "" {
		if path, err = filepath.Abs(path); err == nil {
			_, err = os.Stat(path)
		}
		return path, path, err
	}
	revision, commit, err := findPreviousCommit()
	if err != nil {
		return "", "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", fmt.Errorf("%w: %w", errNoPrevious, err)
	}
	path = filepath.Join(cache, "stoa", "program-"+commit)
	if _, err := os.Stat(path); err == nil {
		return path, revision, nil
	}
	return path, revision, compileCommit(commit, path)
}

// findPreviousCommit returns the newest tag of a version that is below HEAD, else the revision in testdata/previous, and
// its commit.
func findPreviousCommit() (revision, commit string, err error) {
	head, err := runGit("rev-parse", "HEAD")
	if err != nil {
		return "", "", fmt.Errorf("%w: %w", errNoPrevious, err)
	}
	tags, err := runGit("tag", "--list", "v[0-9]*", "--merged", "HEAD", "--sort=-version:refname")
	if err != nil {
		return "", "", err
	}
	candidates := strings.Fields(tags)
	file, err := os.ReadFile("testdata/previous")
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(string(file)) {
		if !strings.HasPrefix(line, "#") {
			candidates = append(candidates, strings.Fields(line)...)
		}
	}
	for _, revision := range candidates {
		commit, err := runGit("rev-parse", "--verify", "--quiet", revision+"^{commit}")
		if err == nil && commit != head {
			return revision, commit, nil
		}
	}
	return "", "", fmt.Errorf("%w: this clone has none of %q", errNoPrevious, candidates)
}

// compileCommit builds the program of a commit and moves it to path.
func compileCommit(commit, path string) error {
	sources := filepath.Join(buildDir, "previous")
	if err := errors.Join(os.MkdirAll(sources, 0o755), os.MkdirAll(filepath.Dir(path), 0o755)); err != nil { //nolint:gosec // as a clone
		return err
	}
	archive := filepath.Join(buildDir, "previous.tar")
	if _, err := runGit("archive", "--output", archive, commit); err != nil {
		return err
	}
	if written, err := exec.Command("tar", "-xf", archive, "-C", sources).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack %s: %w\n%s", commit, err, written)
	}
	// Another run may build the same: each moves its own, as a whole.
	made := fmt.Sprintf("%s.%d", path, os.Getpid())
	cmd := exec.Command("go", "build", "-trimpath", "-o", made, "./cmd/stoa")
	cmd.Dir, cmd.Env = sources, append(os.Environ(), "CGO_ENABLED=0")
	if written, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", commit, err, written)
	}
	return os.Rename(made, path)
}

// runGit returns what git prints in the repository of this package.
func runGit(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = "../../.."
	written, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(written)), nil
}
