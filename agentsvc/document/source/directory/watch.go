package directory

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Bounds of watching.
const (
	// maxWatchedFolders bounds the watches of one source: the kernel has a number of them for all processes.
	maxWatchedFolders = 4096
	// quietPeriod is how long no change must arrive before a change counts; maxQuietWait bounds the wait for that.
	quietPeriod  = 500 * time.Millisecond
	maxQuietWait = 5 * time.Second
	// pollPeriod is after how long Wait returns without a change: a watch does not see everything, e.g. on file systems
	// of other machines. blindPollPeriod is the same where not all folders are watched.
	pollPeriod      = 10 * time.Minute
	blindPollPeriod = time.Minute
)

// watcher watches the folders of the latest listing. A change while a listing runs counts for the next Wait.
type watcher struct {
	// changed has a value if something changed since the latest listing began.
	changed chan struct{}
	// closing is closed by close.
	closing chan struct{}
	closed  sync.Once
	// forwarding ends when forward has returned.
	forwarding sync.WaitGroup

	// mu guards the fields below.
	mu       sync.Mutex
	notifier *fsnotify.Watcher // nil before the first listing, and where the system has none left
	watched  map[string]bool
	// seen are the folders of the listing that is running.
	seen map[string]bool
	// blind reports that a folder is not watched.
	blind bool
}

func newWatcher() *watcher {
	return &watcher{changed: make(chan struct{}, 1), closing: make(chan struct{}), watched: map[string]bool{}}
}

// begin prepares for a listing. It starts to watch at the first.
func (w *watcher) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.changed:
	default:
	}
	w.seen, w.blind = map[string]bool{}, false
	if w.notifier != nil || w.isClosed() {
		return
	}
	notifier, err := fsnotify.NewWatcher()
	if err != nil {
		return // Wait polls
	}
	w.notifier = notifier
	w.forwarding.Go(func() { w.forward(notifier) })
}

// isClosed reports whether close was called.
func (w *watcher) isClosed() bool {
	select {
	case <-w.closing:
		return true
	default:
		return false
	}
}

// addFolder watches a folder, before it is read, so that no change is missed.
func (w *watcher) addFolder(folder string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[folder] = true
	switch {
	case w.watched[folder]:
	case w.notifier == nil || len(w.watched) >= maxWatchedFolders:
		w.blind = true
	default:
		if err := w.notifier.Add(folder); err != nil {
			w.blind = w.blind || !errors.Is(err, fs.ErrNotExist)
			return
		}
		w.watched[folder] = true
	}
}

// end drops the watches of folders that the listing did not see.
func (w *watcher) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for folder := range w.watched {
		if !w.seen[folder] {
			delete(w.watched, folder)
			_ = w.notifier.Remove(folder) // an error means that the folder is gone
		}
	}
}

// forward turns the events of notifier into changed, until it is closed.
func (w *watcher) forward(notifier *fsnotify.Watcher) {
	for {
		select {
		case e, open := <-notifier.Events:
			if !open {
				return
			}
			if e.Op == fsnotify.Chmod {
				continue // reading a file changes its time of access
			}
			if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
				// The kernel drops the watch of a folder that is gone; one with the same name needs a new watch.
				w.mu.Lock()
				if w.watched[e.Name] {
					delete(w.watched, e.Name)
					_ = notifier.Remove(e.Name)
				}
				w.mu.Unlock()
			}
		case _, open := <-notifier.Errors: // events may be missing, so look
			if !open {
				return
			}
		}
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
}

// wait returns nil after a change, once the folder is quiet, or after the time of a poll.
func (w *watcher) wait(ctx context.Context) error {
	w.mu.Lock()
	poll := pollPeriod
	if w.blind || w.notifier == nil {
		poll = blindPollPeriod
	}
	w.mu.Unlock()
	pollTimer := time.NewTimer(poll)
	defer pollTimer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-w.closing:
		return fs.ErrClosed
	case <-pollTimer.C:
		return nil
	case <-w.changed:
	}
	// A further change starts the quiet period again, up to a bound: a folder in which something is always written is
	// never quiet.
	end := time.NewTimer(maxQuietWait)
	defer end.Stop()
	quiet := time.NewTimer(quietPeriod)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.closing:
			return fs.ErrClosed
		case <-quiet.C:
			return nil
		case <-end.C:
			return nil
		case <-w.changed:
			quiet.Reset(quietPeriod)
		}
	}
}

// close ends the watching and waits for forward.
func (w *watcher) close() (err error) {
	w.closed.Do(func() {
		w.mu.Lock()
		close(w.closing)
		if w.notifier != nil {
			err = w.notifier.Close()
		}
		w.mu.Unlock()
		w.forwarding.Wait()
	})
	return err
}
