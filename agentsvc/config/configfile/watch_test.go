package configfile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// startWatch starts Watch on path and returns a channel that receives once for each change.
func startWatch(t *testing.T, path string) <-chan struct{} {
	t.Helper()
	changes, done := make(chan struct{}, 10), make(chan error)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- Watch(ctx, []string{path, EnvFile(path)}, func() { changes <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for i := 0; len(changes) == 0; i++ { // until it has noticed a change
		writeFile(t, filepath.Join(filepath.Dir(path), ".env"), fmt.Sprintf("TRY=%d", i))
		for range 50 {
			if time.Sleep(quietPeriod / 10); len(changes) > 0 {
				break
			}
		}
		if i > 60 {
			t.Fatal("nothing is seen")
		}
	}
	<-changes
	return changes
}

func expectChange(t *testing.T, changes <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-changes:
	case <-time.After(time.Minute):
		t.Fatalf("%s was not seen", what)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "stoa.yaml")
	writeFile(t, path, "name: 0")
	changes := startWatch(t, path)

	for range 5 { // several quick writes are one change
		writeFile(t, path, "name: 1")
		writeFile(t, path, "name: 2")
	}
	expectChange(t, changes, "a change")
	if time.Sleep(3 * quietPeriod); len(changes) > 4 {
		t.Errorf("ten writes made %d more changes", len(changes))
	}
	for len(changes) > 0 {
		<-changes
	}

	writeFile(t, filepath.Join(folder, "other"), "x")
	writeFile(t, path, "name: 2") // unchanged content
	time.Sleep(3 * quietPeriod)
	if len(changes) > 0 {
		t.Error("nothing changed, but changed was called")
	}

	writeFile(t, filepath.Join(folder, ".env"), "A=1")
	expectChange(t, changes, "the .env file")

	writeFile(t, filepath.Join(folder, "new"), "name: 3")
	if err := os.Rename(filepath.Join(folder, "new"), path); err != nil {
		t.Fatal(err)
	}
	expectChange(t, changes, "a replaced file")
}

// TestWatchLinks changes a file the way orchestrators do: a symbolic link to a folder is replaced by one to another.
func TestWatchLinks(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, version := range []string{"1", "2"} {
		if err := os.Mkdir(filepath.Join(folder, version), 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(folder, version, "stoa.yaml"), "name: "+version)
	}
	link := func(target, name string) {
		if err := os.Symlink(target, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("1", "data")
	link("data/stoa.yaml", "stoa.yaml")
	changes := startWatch(t, filepath.Join(folder, "stoa.yaml"))
	link("2", "next")
	if err := os.Rename(filepath.Join(folder, "next"), filepath.Join(folder, "data")); err != nil {
		t.Fatal(err)
	}
	expectChange(t, changes, "the moved link")
}

func TestWatchNeedsAFolder(t *testing.T) {
	t.Parallel()
	if err := Watch(t.Context(), []string{"/nowhere/at/all.yaml"}, func() {}); err == nil {
		t.Error("no error")
	}
}
