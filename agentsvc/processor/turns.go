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

// appOf returns the app that [WithApp] put into ctx, "" if none did.
func appOf(ctx context.Context) string {
	app, _ := ctx.Value(appKey{}).(string)
	return app
}

// Turns lets a bounded number of goroutines compute at a time. A goroutine that computes for long calls [Turns.Yield] every
// now and then, and does not wait for anything else between [Turns.Take] and [Turns.Leave].
type Turns struct {
	alone  bool         // there is one processor, so that who has a turn must sleep for the others
	slices atomic.Int64 // computed, where alone is set

	mu     sync.Mutex
	free   int
	apps   []*waiting // that have goroutines waiting, the next one first
	byName map[string]*waiting
}

// waiting are the goroutines of one app that wait for a turn, the next one first.
type waiting struct {
	app   string
	turns []chan struct{} // closed when the goroutine has its turn
}

// Process are the turns of this process: half of its processors.
var Process = NewTurns(runtime.GOMAXPROCS(0))

// NewTurns returns turns for a number of processors.
func NewTurns(processors int) *Turns {
	return &Turns{alone: processors < 2, free: max(1, processors/2), byName: map[string]*waiting{}}
}

// Take waits for a turn. It returns the context's error if that ends before.
func (t *Turns) Take(ctx context.Context) error {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	return t.wait(ctx, func() {})
}

// Yield gives the caller's turn to those who wait, and waits for another one. After an error the caller has no turn.
func (t *Turns) Yield(ctx context.Context) error {
	if t.alone && t.slices.Add(1)%restEvery == 0 {
		time.Sleep(restTime)
	}
	yield()
	t.mu.Lock()
	if len(t.apps) == 0 {
		t.mu.Unlock()
		return nil
	}
	return t.wait(ctx, t.next)
}

// Leave ends the caller's turn.
func (t *Turns) Leave() {
	t.mu.Lock()
	t.next()
	t.mu.Unlock()
}

// A process with one processor computes nothing for restTime after restEvery slices, which take somewhat longer: Go's scheduler
// looks at the network only when no goroutine can run, or every 10 ms.
const (
	restEvery = 8
	restTime  = time.Millisecond
)

// wait puts the caller into the line of its app, calls give, and returns when the caller has its turn. t.mu is held, and released.
func (t *Turns) wait(ctx context.Context, give func()) error {
	w := t.join(appOf(ctx))
	turn := make(chan struct{})
	w.turns = append(w.turns, turn)
	give()
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-turn: // it came at the same time
		t.next()
	default:
		t.remove(w, turn)
	}
	return ctx.Err()
}

func (t *Turns) join(app string) *waiting {
	w := t.byName[app]
	if w == nil {
		w = &waiting{app: app}
		t.byName[app] = w
		t.apps = append(t.apps, w)
	}
	return w
}

// next gives a turn that has ended to the next app, which goes behind all others then. t.mu is held.
func (t *Turns) next() {
	if len(t.apps) == 0 {
		t.free++
		return
	}
	w := t.apps[0]
	t.apps = append(t.apps[1:], w)
	turn := w.turns[0]
	t.remove(w, turn)
	close(turn)
}

// remove takes a goroutine out of the line. t.mu is held.
func (t *Turns) remove(w *waiting, turn chan struct{}) {
	w.turns = slices.DeleteFunc(w.turns, func(c chan struct{}) bool { return c == turn })
	if len(w.turns) == 0 {
		t.apps = slices.DeleteFunc(t.apps, func(other *waiting) bool { return other == w })
		delete(t.byName, w.app)
	}
}
