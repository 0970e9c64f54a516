package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// How garbage is collected while large bodies are taken in. Each leaves copies of itself behind, and at defaultGCPercent the heap may
// grow to five times what is in use, bodies included, before they are collected.
const (
	pressureGCPercent     = 25
	pressureBytes         = 2 << 20                // that large bodies take in memory, from when on it is so
	pressureCheckInterval = 500 * time.Millisecond // without that many before it is seen whether it may be as usual again
	maxResidualHeap       = 16 << 20               // bytes of heap in use beyond what was in use before, with which it may
	maxPressureTime       = 30 * time.Second       // without that many after which it is in any case
)

// gcTuner has garbage collected more often as long as large bodies, or what was made of them, are in memory, or large answers.
type gcTuner struct {
	defaultPercent  int           // percent
	largeBytes      atomic.Int64  // bytes that large bodies and answers take
	underPressure   atomic.Bool   // garbage is collected more often
	pressureStarted chan struct{} // pressed has become true
}

func newGCTuner() *gcTuner {
	return &gcTuner{defaultPercent: int(readRuntimeMetric("/gc/gogc:percent")), pressureStarted: make(chan struct{}, 1)} //nolint:gosec // a percentage
}

// newBytesTracker returns what is told how many bytes one kind of large things takes. That is called often and by many.
func (c *gcTuner) newBytesTracker() func(bytes int64) {
	var last atomic.Int64
	return func(bytes int64) { c.addBytes(bytes - last.Swap(bytes)) }
}

// addBytes adds to what large things take.
func (c *gcTuner) addBytes(bytes int64) {
	if large := c.largeBytes.Add(bytes); large > pressureBytes && c.underPressure.CompareAndSwap(false, true) {
		if c.defaultPercent > pressureGCPercent { // GOGC may be less, or off
			debug.SetGCPercent(pressureGCPercent)
		}
		select {
		case c.pressureStarted <- struct{}{}:
		default: // Run has yet to see the last time
		}
	}
}

// Run goes back to the usual way of collecting when large bodies are gone, until ctx ends.
func (c *gcTuner) Run(ctx context.Context) error {
	for {
		before := readRuntimeMetric("/gc/heap/live:bytes")
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.pressureStarted:
		}
		if err := c.waitUntilFreed(ctx, before); err != nil {
			return err
		}
		if c.defaultPercent > pressureGCPercent {
			debug.SetGCPercent(c.defaultPercent)
		}
		c.underPressure.Store(false)
	}
}

// waitUntilFreed returns when what large bodies took has been collected.
func (c *gcTuner) waitUntilFreed(ctx context.Context, before uint64) error {
	check := time.NewTicker(pressureCheckInterval)
	defer check.Stop()
	for since := time.Now(); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-check.C:
		}
		if c.largeBytes.Load() > pressureBytes {
			since = time.Now()
			continue
		}
		runtime.GC()
		if readRuntimeMetric("/gc/heap/live:bytes") <= before+maxResidualHeap || time.Since(since) > maxPressureTime {
			return nil
		}
	}
}

// readRuntimeMetric reads a number of the runtime's.
func readRuntimeMetric(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
