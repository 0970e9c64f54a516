package load

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Options says how long and how wide a run is. Exactly one of For and Calls is set.
type Options struct {
	Conns int
	For   time.Duration
	Calls int
	// Lean has one thread drive all connections. It is for short answers: who reads one that comes bit by bit keeps the
	// others waiting.
	Lean bool
}

// Result is what a run counted.
type Result struct {
	Calls   int // good answers
	Errors  int
	Elapsed time.Duration
	Err     error // the first error, nil if there was none

	whole, first *hdrhistogram.Histogram // microseconds
}

// RPS is good answers per second.
func (r Result) RPS() float64 { return float64(r.Calls) / r.Elapsed.Seconds() }

// Whole is the time within which the given percentage of the calls was answered.
func (r Result) Whole(percent float64) time.Duration { return at(r.whole, percent) }

// Mean is how long a call took on average.
func (r Result) Mean() time.Duration {
	return time.Duration(r.whole.Mean() * float64(time.Microsecond))
}

// First is the time within which the given percentage of the calls had its first token.
func (r Result) First(percent float64) time.Duration { return at(r.first, percent) }

func at(h *hdrhistogram.Histogram, percent float64) time.Duration {
	return time.Duration(h.ValueAtQuantile(percent)) * time.Microsecond
}

// Run drives t until the time or the calls of o are spent or ctx ends. It fails only if no connection
// could be made; calls that fail are counted in the result.
func Run(ctx context.Context, t Target, o Options) (Result, error) {
	return RunEach(ctx, []Target{t}, o)
}

// RunEach is [Run] where each connection has one of several targets of one server, in turn.
func RunEach(ctx context.Context, targets []Target, o Options) (Result, error) {
	clients := make([]*Client, o.Conns)
	for i := range clients {
		c, err := Dial(ctx, targets[0])
		if err != nil {
			return Result{}, err
		}
		defer func() { _ = c.Close() }()
		clients[i] = c
	}
	var left atomic.Int64
	left.Store(int64(o.Calls))
	start := time.Now()
	more := func() bool {
		if ctx.Err() != nil {
			return false
		}
		if o.Calls > 0 {
			return left.Add(-1) >= 0
		}
		return time.Since(start) < o.For
	}
	if o.Lean {
		r, err := driveAll(ctx, clients, targets, more)
		r.Elapsed = time.Since(start)
		return r, err
	}
	parts := make([]Result, len(clients))
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() { parts[i] = drive(ctx, c, targets[i%len(targets)], more) })
	}
	wg.Wait()
	return merge(parts, time.Since(start)), nil
}

func drive(ctx context.Context, c *Client, t Target, more func() bool) Result {
	r := empty()
	for more() {
		timing, err := c.Call(ctx, t)
		r.count(timing, err)
		if err != nil {
			rest(ctx)
		}
	}
	return r
}

// count adds a call.
func (r *Result) count(timing Timing, err error) {
	if err != nil {
		r.Errors++
		r.Err = cmp.Or(r.Err, err)
		return
	}
	r.Calls++
	_ = r.whole.RecordValue(max(1, timing.Whole.Microseconds()))
	_ = r.first.RecordValue(max(1, timing.First.Microseconds()))
}

// rest keeps a loop whose calls fail at once from spinning.
func rest(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Millisecond):
	}
}

func empty() Result {
	top := callTimeout.Microseconds()
	return Result{whole: hdrhistogram.New(1, top, 3), first: hdrhistogram.New(1, top, 3)}
}

func merge(parts []Result, elapsed time.Duration) Result {
	sum := empty()
	sum.Elapsed = elapsed
	for _, p := range parts {
		sum.Calls += p.Calls
		sum.Errors += p.Errors
		if sum.Err == nil {
			sum.Err = p.Err
		}
		sum.whole.Merge(p.whole)
		sum.first.Merge(p.first)
	}
	return sum
}
