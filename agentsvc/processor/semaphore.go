// Package processor bounds the processor time that long computations on behalf of tenants take: what their patterns, schemas
// and scripts cost. They take turns: at most half of the processors compute at a time, so that the network, the queue and short
// calls always find a free one, and apps get their turns one after the other, however many computations each has.
package processor

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

type appKey struct{}

// WithApp returns a context in which long computations are done on behalf of an app.
func WithApp(ctx context.Context, app string) context.Context {
	return context.WithValue(ctx, appKey{}, app)
}

// appFromContext returns the app that [WithApp] put into ctx, "" if none did.
func appFromContext(ctx context.Context) string {
	app, _ := ctx.Value(appKey{}).(string)
	return app
}

// Semaphore lets a bounded number of goroutines compute at a time. A goroutine that computes for long calls [Semaphore.Yield] every
// now and then, and does not wait for anything else between [Semaphore.Acquire] and [Semaphore.Release].
type Semaphore struct {
	singleProcessor bool         // there is one processor, so that who has a turn must sleep for the others
	sliceCount      atomic.Int64 // computed, where alone is set

	mu          sync.Mutex
	free        int
	waitingApps []*appQueue // that have goroutines waiting, the next one first
	queueByApp  map[string]*appQueue
}

// appQueue are the goroutines of one app that wait for a turn, the next one first.
type appQueue struct {
	app     string
	waiters []chan struct{} // closed when the goroutine has its turn
}

// Shared are the turns of this process: half of its processors.
var Shared = NewSemaphore(runtime.GOMAXPROCS(0))

// NewSemaphore returns turns for a number of processors.
func NewSemaphore(processors int) *Semaphore {
	return &Semaphore{singleProcessor: processors < 2, free: max(1, processors/2), queueByApp: map[string]*appQueue{}}
}

// Acquire waits for a turn. It returns the context's error if that ends before.
func (t *Semaphore) Acquire(ctx context.Context) error {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	return t.waitForPermit(ctx, func() {})
}

// Yield gives the caller's turn to those who wait, and waits for another one. After an error the caller has no turn.
func (t *Semaphore) Yield(ctx context.Context) error {
	if t.singleProcessor && t.sliceCount.Add(1)%pauseEvery == 0 {
		time.Sleep(pauseTime)
	}
	yieldThread()
	t.mu.Lock()
	if len(t.waitingApps) == 0 {
		t.mu.Unlock()
		return nil
	}
	return t.waitForPermit(ctx, t.grantNext)
}

// Release ends the caller's turn.
func (t *Semaphore) Release() {
	t.mu.Lock()
	t.grantNext()
	t.mu.Unlock()
}

// A process with one processor computes nothing for pauseTime after pauseEvery slices, which take somewhat longer: Go's scheduler
// looks at the network only when no goroutine can run, or every 10 ms.
const (
	pauseEvery = 8
	pauseTime  = time.Millisecond
)

// waitForPermit puts the caller into the line of its app, calls give, and returns when the caller has its turn. t.mu is held, and released.
func (t *Semaphore) waitForPermit(ctx context.Context, handOff func()) error {
	w := t.findOrAddQueue(appFromContext(ctx))
	permit := make(chan struct{})
	w.waiters = append(w.waiters, permit)
	handOff()
	t.mu.Unlock()
	select {
	case <-permit:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-permit: // it came at the same time
		t.grantNext()
	default:
		t.removeWaiter(w, permit)
	}
	return ctx.Err()
}

func (t *Semaphore) findOrAddQueue(app string) *appQueue {
	w := t.queueByApp[app]
	if w == nil {
		w = &appQueue{app: app}
		t.queueByApp[app] = w
		t.waitingApps = append(t.waitingApps, w)
	}
	return w
}

// grantNext gives a turn that has ended to the next app, which goes behind all others then. t.mu is held.
func (t *Semaphore) grantNext() {
	if len(t.waitingApps) == 0 {
		t.free++
		return
	}
	w := t.waitingApps[0]
	t.waitingApps = append(t.waitingApps[1:], w)
	permit := w.waiters[0]
	t.removeWaiter(w, permit)
	close(permit)
}

// removeWaiter takes a goroutine out of the line. t.mu is held.
func (t *Semaphore) removeWaiter(w *appQueue, permit chan struct{}) {
	w.waiters = slices.DeleteFunc(w.waiters, func(c chan struct{}) bool { return c == permit })
	if len(w.waiters) == 0 {
		t.waitingApps = slices.DeleteFunc(t.waitingApps, func(other *appQueue) bool { return other == w })
		delete(t.queueByApp, w.app)
	}
}
