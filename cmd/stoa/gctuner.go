package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// How garbage is collected while large bodies are taken in. Each leaves copies of itself behind, and at gcPercent the heap may
// grow to five times what is in use, bodies included, before they are collected.
const (
	pressedPercent = 25
	pressedBytes   = 2 << 20                // that large bodies take in memory, from when on it is so
	calmFor        = 500 * time.Millisecond // without that many before it is seen whether it may be as usual again
	calmHeap       = 16 << 20               // bytes of heap in use beyond what was in use before, with which it may
	calmAtLast     = 30 * time.Second       // without that many after which it is in any case
)

// gcTuner has garbage collected more often as long as large bodies, or what was made of them, are in memory, or large answers.
type gcTuner struct {
	usual   int           // percent
	large   atomic.Int64  // bytes that large bodies and answers take
	pressed atomic.Bool   // garbage is collected more often
	begun   chan struct{} // pressed has become true
}

func newGCTuner() *gcTuner {
	return &gcTuner{usual: int(readMetric("/gc/gogc:percent")), begun: make(chan struct{}, 1)} //nolint:gosec // a percentage
}

// watch returns what is told how many bytes one kind of large things takes. That is called often and by many.
func (c *gcTuner) watch() func(bytes int64) {
	var last atomic.Int64
	return func(bytes int64) { c.add(bytes - last.Swap(bytes)) }
}

// add adds to what large things take.
func (c *gcTuner) add(bytes int64) {
	if large := c.large.Add(bytes); large > pressedBytes && c.pressed.CompareAndSwap(false, true) {
		if c.usual > pressedPercent { // GOGC may be less, or off
			debug.SetGCPercent(pressedPercent)
		}
		select {
		case c.begun <- struct{}{}:
		default: // Run has yet to see the last time
		}
	}
}

// Run goes back to the usual way of collecting when large bodies are gone, until ctx ends.
func (c *gcTuner) Run(ctx context.Context) error {
	for {
		before := readMetric("/gc/heap/live:bytes")
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.begun:
		}
		if err := c.calm(ctx, before); err != nil {
			return err
		}
		if c.usual > pressedPercent {
			debug.SetGCPercent(c.usual)
		}
		c.pressed.Store(false)
	}
}

// calm returns when what large bodies took has been collected.
func (c *gcTuner) calm(ctx context.Context, before uint64) error {
	look := time.NewTicker(calmFor)
	defer look.Stop()
	for since := time.Now(); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
		if c.large.Load() > pressedBytes {
			since = time.Now()
			continue
		}
		runtime.GC()
		if readMetric("/gc/heap/live:bytes") <= before+calmHeap || time.Since(since) > calmAtLast {
			return nil
		}
	}
}

// readMetric reads a number of the runtime's.
func readMetric(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
