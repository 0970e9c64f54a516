// Package processor bounds the processor time of long computations that tenants cause by their patterns, schemas and
// scripts. Go's scheduler would let such goroutines occupy every processor, and all requests of the process would wait.
//
// A computation acquires a permit of the [Semaphore] [Shared], calls [Semaphore.Yield] after each slice of work, and
// releases the permit at its end. At most half of the processors have permits, so the network, the queue and short
// calls always find a free one. A permit that becomes free goes to the waiting apps in turn (round robin), however many
// computations each has. Computations without an app ("") share one queue.
//
// [NewPermits] makes a semaphore for other work that apps share in the same way, such as helper processes.
package processor

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Semaphore lets a bounded number of goroutines work at the same time. A goroutine with a permit of [Shared] must not wait
// for anything else (I/O, locks held across slices) between [Semaphore.Acquire] and [Semaphore.Release], since it would
// block the others.
type Semaphore struct {
	// pauses reports that there are so few processors that the goroutine with a permit must sleep now and then. Set by
	// NewSemaphore, then read-only.
	pauses bool
	// sliceCount counts the calls of Yield where pauses is set.
	sliceCount atomic.Int64

	// mu guards the fields below and the appQueues.
	mu sync.Mutex
	// free is the number of permits that no goroutine has. It is 0 whenever a goroutine waits.
	free int
	// waitingApps are the apps with waiting goroutines, in the order in which they get permits.
	waitingApps []*appQueue
	// queueByApp holds the same queues by app.
	queueByApp map[string]*appQueue
}

// appQueue is the queue of one app's waiting goroutines, first come first served. It exists only while it is not empty.
// Guarded by Semaphore.mu.
type appQueue struct {
	app string
	// waiters has one channel for each goroutine, closed when the goroutine has its permit.
	waiters []chan struct{}
}

// Shared is the semaphore of this process, for half of its processors.
var Shared = NewSemaphore(runtime.GOMAXPROCS(0))

// NewSemaphore returns a semaphore for a machine with the given number of processors: half of them, at least one
// permit.
func NewSemaphore(processors int) *Semaphore {
	return &Semaphore{pauses: processors < manyProcessors, free: max(1, processors/2), queueByApp: map[string]*appQueue{}}
}

// NewPermits returns a semaphore with n permits, for goroutines that do not call Yield.
func NewPermits(n int) *Semaphore { return &Semaphore{free: n, queueByApp: map[string]*appQueue{}} }

// Acquire waits for a permit for a computation of app. If ctx ends first, it returns ctx's error and the caller has no
// permit.
func (s *Semaphore) Acquire(ctx context.Context, app string) error {
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.mu.Unlock()
		return nil
	}
	return s.waitForPermit(ctx, app, func() {})
}

// Yield passes the caller's permit to the next waiting app and waits for a new one for app; without waiting apps the caller
// keeps it. After an error the caller has no permit and must not call Release.
func (s *Semaphore) Yield(ctx context.Context, app string) error {
	if s.pauses && s.sliceCount.Add(1)%pauseEvery == 0 {
		time.Sleep(pauseTime)
	}
	yieldThread()
	s.mu.Lock()
	if len(s.waitingApps) == 0 {
		s.mu.Unlock()
		return nil
	}
	return s.waitForPermit(ctx, app, s.grantNext)
}

// Release returns the caller's permit.
func (s *Semaphore) Release() {
	s.mu.Lock()
	s.grantNext()
	s.mu.Unlock()
}

// With fewer than manyProcessors, the computing goroutine sleeps pauseTime after every pauseEvery slices. On one processor, Go's
// scheduler polls the network only when no goroutine can run, or every 10 ms. On two, the other one has to serve the database, the
// calls and their clients alone: without pauses the p99 of a quiet tenant's calls doubled during hostile patterns (2.2 times on SQLite,
// 2.0 on PostgreSQL), with them it is 1.2 and 1.4 times as long (make bench ARGS="-only PATTERNS -quick"). A slice takes less than 1 ms
// (package pattern).
const (
	manyProcessors = 4

	pauseEvery = 8
	pauseTime  = time.Millisecond
)

// waitForPermit adds the caller to the queue of app, calls handOff, and returns when the caller has a permit or ctx
// has ended. handOff passes on the permit that the caller still has (Yield) after the caller is in the queue, so that
// both happen in one critical section. The caller holds s.mu; waitForPermit unlocks it.
func (s *Semaphore) waitForPermit(ctx context.Context, app string, handOff func()) error {
	w := s.findOrAddQueue(app)
	permit := make(chan struct{})
	w.waiters = append(w.waiters, permit)
	handOff()
	s.mu.Unlock()
	select {
	case <-permit:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-permit: // granted at the same time: pass it on
		s.grantNext()
	default:
		s.removeWaiter(w, permit)
	}
	return ctx.Err()
}

// findOrAddQueue returns the queue of app. A new one is last in the round. The caller holds s.mu.
func (s *Semaphore) findOrAddQueue(app string) *appQueue {
	w := s.queueByApp[app]
	if w == nil {
		w = &appQueue{app: app}
		s.queueByApp[app] = w
		s.waitingApps = append(s.waitingApps, w)
	}
	return w
}

// grantNext passes a free permit to the first waiting app, which then becomes the last in the round, or counts it as
// free if none waits. The caller holds s.mu.
func (s *Semaphore) grantNext() {
	if len(s.waitingApps) == 0 {
		s.free++
		return
	}
	w := s.waitingApps[0]
	s.waitingApps = append(s.waitingApps[1:], w)
	permit := w.waiters[0]
	s.removeWaiter(w, permit)
	close(permit)
}

// removeWaiter removes a goroutine from its queue, and the queue if it is then empty. The caller holds s.mu.
func (s *Semaphore) removeWaiter(w *appQueue, permit chan struct{}) {
	w.waiters = slices.DeleteFunc(w.waiters, func(c chan struct{}) bool { return c == permit })
	if len(w.waiters) == 0 {
		s.waitingApps = slices.DeleteFunc(s.waitingApps, func(other *appQueue) bool { return other == w })
		delete(s.queueByApp, w.app)
	}
}
