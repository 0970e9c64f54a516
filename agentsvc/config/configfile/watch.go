package configfile

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// quietPeriod is how long the files must stay unchanged before a change counts: editors write in several steps.
const quietPeriod = 100 * time.Millisecond

// Watch calls changed each time the content of one of files has changed and stayed the same for quietPeriod; a file
// need not exist. It calls it on the goroutine that called Watch and returns nil when ctx ends. It watches folders, so
// that it also notices files that are replaced or are symbolic links, as orchestrators mount them. It does not notice
// changes before it is called: start it before [Read].
func Watch(ctx context.Context, files []string, changed func()) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch configuration: %w", err)
	}
	defer watcher.Close()
	for _, path := range files {
		folders := []string{filepath.Dir(path)}
		if target, err := filepath.EvalSymlinks(path); err == nil {
			folders = append(folders, filepath.Dir(target))
		}
		for _, folder := range folders {
			if err := watcher.Add(folder); err != nil {
				return fmt.Errorf("watch configuration: %w", err)
			}
		}
	}
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
				return errors.New("watch configuration: the system stopped reporting changes")
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
		// The timer is not restarted by further events: a folder in which something else is written all the time
		// would never be quiet.
		if !waiting {
			waiting = true
			timer.Reset(quietPeriod)
		}
	}
}

// hashFiles returns a hash of the content of files. A file that cannot be read counts as empty.
func hashFiles(files []string) [sha256.Size]byte {
	var all []byte
	for _, name := range files {
		content, _ := Read(name)
		sum := sha256.Sum256(content)
		all = append(all, sum[:]...)
	}
	return sha256.Sum256(all)
}
