package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// quietPeriod is how long the files must stay the same before a change counts: editors write in several steps.
const quietPeriod = 100 * time.Millisecond

// Watch calls changed, in its own goroutine, each time the content of the file at path or of the .env file
// beside it has changed and settled. It returns nil when ctx ends. It looks at folders, so that files that are
// replaced or reached through links (as orchestrators mount them) are seen too. What changes before Watch is called
// goes unseen: start it before [Load].
func Watch(ctx context.Context, path string, changed func()) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch configuration: %w", err)
	}
	defer watcher.Close()
	folder := filepath.Dir(path)
	if err := watcher.Add(folder); err != nil {
		return fmt.Errorf("watch configuration: %w", err)
	}
	if target, err := filepath.EvalSymlinks(path); err == nil && filepath.Dir(target) != folder {
		if err := watcher.Add(filepath.Dir(target)); err != nil {
			return fmt.Errorf("watch configuration: %w", err)
		}
	}
	files := []string{path, filepath.Join(folder, ".env")}
	before := hashFiles(files)
	seen := before
	timer := time.NewTimer(quietPeriod)
	timer.Stop()
	waiting := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-watcher.Events:
			if !open {
				return errors.New("watch configuration: the system stopped telling of changes")
			}
		case <-watcher.Errors: //nolint:errcheck // it says that events may be missing, so look
		case <-timer.C:
			waiting = false
			now := hashFiles(files)
			if now == seen && now != before {
				before = now
				changed()
			}
			if seen == now {
				continue
			}
			seen = now
		}
		// Not put off by further events: whatever else is written in the folder may never be quiet.
		if !waiting {
			waiting = true
			timer.Reset(quietPeriod)
		}
	}
}

// hashFiles tells two states of files apart by their content. A file that cannot be read counts as empty.
func hashFiles(files []string) [sha256.Size]byte {
	var all []byte
	for _, name := range files {
		content, _ := readFile(name)
		sum := sha256.Sum256(content)
		all = append(all, sum[:]...)
	}
	return sha256.Sum256(all)
}
