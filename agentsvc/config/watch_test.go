package config

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

// watch has Watch watch path, and returns a channel that receives once per change.
func watch(t *testing.T, path string) <-chan struct{} {
	t.Helper()
	changes, done := make(chan struct{}, 10), make(chan error)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- Watch(ctx, path, func() { changes <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for i := 0; len(changes) == 0; i++ { // until it sees what changes
		write(t, filepath.Join(filepath.Dir(path), ".env"), fmt.Sprintf("TRY=%d", i))
		for range 50 {
			if time.Sleep(settle / 10); len(changes) > 0 {
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

func expect(t *testing.T, changes <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-changes:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s was not seen", what)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "stoa.yaml")
	write(t, path, "name: 0")
	changes := watch(t, path)

	for range 5 { // several writes at once are one change
		write(t, path, "name: 1")
		write(t, path, "name: 2")
	}
	expect(t, changes, "a change")
	if time.Sleep(3 * settle); len(changes) > 4 {
		t.Errorf("ten writes made %d more changes", len(changes))
	}
	for len(changes) > 0 {
		<-changes
	}

	write(t, filepath.Join(folder, "other"), "x")
	write(t, path, "name: 2") // the same content
	time.Sleep(3 * settle)
	if len(changes) > 0 {
		t.Error("nothing changed, but changed was called")
	}

	write(t, filepath.Join(folder, ".env"), "A=1")
	expect(t, changes, "the .env file")

	write(t, filepath.Join(folder, "new"), "name: 3")
	if err := os.Rename(filepath.Join(folder, "new"), path); err != nil {
		t.Fatal(err)
	}
	expect(t, changes, "a replaced file")
}

// TestWatchLinks changes a file the way orchestrators do: a link to a folder moves on to another.
func TestWatchLinks(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, version := range []string{"1", "2"} {
		if err := os.Mkdir(filepath.Join(folder, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(folder, version, "stoa.yaml"), "name: "+version)
	}
	link := func(target, name string) {
		if err := os.Symlink(target, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("1", "data")
	link("data/stoa.yaml", "stoa.yaml")
	changes := watch(t, filepath.Join(folder, "stoa.yaml"))
	link("2", "next")
	if err := os.Rename(filepath.Join(folder, "next"), filepath.Join(folder, "data")); err != nil {
		t.Fatal(err)
	}
	expect(t, changes, "the moved link")
}

func TestWatchNeedsAFolder(t *testing.T) {
	t.Parallel()
	if err := Watch(t.Context(), "/nowhere/at/all.yaml", func() {}); err == nil {
		t.Error("no error")
	}
}
