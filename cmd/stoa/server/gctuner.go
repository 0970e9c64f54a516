package server

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"stoa/agentsvc/config/document"
)

// Thresholds of garbage collection while large request bodies or answers are in memory. Decoding a large body leaves
// several copies as garbage, and with defaultGCPercent the heap may grow to five times the live memory, these bodies
// included, before a collection. Under pressure the heap may grow by a quarter only.
const (
	pressureGCPercent = 25 // GOGC under pressure
	// pressureBytes is the number of bytes of large bodies and answers above which pressure begins.
	pressureBytes         = 2 << 20
	pressureCheckInterval = 500 * time.Millisecond // between checks whether pressure has ended
	// maxResidualHeap is how many bytes the live heap may be above its size before the pressure.
	maxResidualHeap = 16 << 20
	maxPressureTime = 30 * time.Second // after which pressure ends even if the heap has not shrunk
)

// defaultGCPercent is GOGC where the environment does not set it. A larger heap between collections costs memory and
// saves processor time: with many short requests the process spends a third less time on collection than at Go's
// default of 100. gcTuner lowers it while large bodies are in memory.
const defaultGCPercent = 400

// TuneGC applies defaultGCPercent unless GOGC is set.
func TuneGC() {
	if _, ok := lookupEnv("GOGC"); !ok {
		debug.SetGCPercent(defaultGCPercent)
	}
}

// gcTuner collects garbage more often while large bodies, what was decoded from them, or large answers are in memory.
// addBytes begins the pressure on any goroutine; Run ends it.
type gcTuner struct {
	defaultPercent int // GOGC without pressure; set by newGCTuner
	// largeBytes is the number of bytes in use by large bodies and answers, summed over all trackers.
	largeBytes      atomic.Int64
	underPressure   atomic.Bool   // set by addBytes, cleared by Run
	pressureStarted chan struct{} // capacity 1: wakes Run after underPressure was set
}

// newGCTuner returns a tuner that restores the GOGC in force now. It must be called after TuneGC.
func newGCTuner() *gcTuner {
	return &gcTuner{defaultPercent: int(readRuntimeMetric("/gc/gogc:percent")), pressureStarted: make(chan struct{}, 1)} //nolint:gosec // a percentage
}

// newBytesTracker returns a function that reports how many bytes one user of large memory has at present (an absolute
// number, not a difference). It is safe for concurrent use and cheap enough for every request.
func (t *gcTuner) newBytesTracker() func(bytes int64) {
	var last atomic.Int64
	return func(bytes int64) { t.addBytes(bytes - last.Swap(bytes)) }
}

// addBytes adds to largeBytes and begins the pressure when the threshold is exceeded. CompareAndSwap lets one caller
// change GOGC, since [debug.SetGCPercent] stops the world.
func (t *gcTuner) addBytes(bytes int64) {
	if large := t.largeBytes.Add(bytes); large > pressureBytes && t.underPressure.CompareAndSwap(false, true) {
		if t.defaultPercent > pressureGCPercent { // GOGC may be lower, or off (-1)
			debug.SetGCPercent(pressureGCPercent)
		}
		select {
		case t.pressureStarted <- struct{}{}:
		default: // Run has not yet consumed the previous wake-up
		}
	}
}

// Run restores the default GOGC whenever a pressure has ended, until ctx ends.
func (t *gcTuner) Run(ctx context.Context) error {
	for {
		// Read before the wait: the size of the live heap without pressure.
		before := readRuntimeMetric("/gc/heap/live:bytes")
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.pressureStarted:
		}
		if err := t.waitUntilFreed(ctx, before); err != nil {
			return err
		}
		if t.defaultPercent > pressureGCPercent {
			debug.SetGCPercent(t.defaultPercent)
		}
		t.underPressure.Store(false)
	}
}

// waitUntilFreed returns when the memory of the large bodies has been collected: their users have released it and the
// live heap is back near before (bytes), or maxPressureTime has passed since the release. It collects in each check,
// because a process without requests would not collect by itself.
func (t *gcTuner) waitUntilFreed(ctx context.Context, before uint64) error {
	check := time.NewTicker(pressureCheckInterval)
	defer check.Stop()
	for since := time.Now(); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-check.C:
		}
		if t.largeBytes.Load() > pressureBytes {
			since = time.Now()
			continue
		}
		// Until a collection the live heap still counts what was released.
		runtime.GC()
		if readRuntimeMetric("/gc/heap/live:bytes") <= before+maxResidualHeap || time.Since(since) > maxPressureTime {
			return nil
		}
	}
}

// readRuntimeMetric returns a metric of runtime/metrics that is a uint64.
func readRuntimeMetric(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// configMemory bounds the memory of the configurations that this process reads at the same time. The tree of one takes up to
// 25 MiB and is read again for each purpose: to restore and to mask secrets, to check it, for the audit trail, and to build
// its app. A large configuration is read while no other large one is, of any app, and garbage is collected more often
// meanwhile.
type configMemory struct {
	tuner *gcTuner
	// large has capacity 1 and contains a value while a large configuration is read. It is no mutex, so that package synctest
	// sees who waits for it.
	large chan struct{}
}

func newConfigMemory(tuner *gcTuner) *configMemory {
	return &configMemory{tuner, make(chan struct{}, 1)}
}

// beginReading counts the memory of configurations that are read together as in use until end is called. If they are large,
// of more than pressureBytes, it first waits for the large ones before them. Before end the caller must neither wait for a
// network or a database nor begin another reading.
func (m *configMemory) beginReading(sources ...[]byte) (end func()) {
	var bytes int64
	for _, src := range sources {
		bytes += document.EstimateMemory(src)
	}
	if bytes <= pressureBytes {
		m.tuner.addBytes(bytes)
		return func() { m.tuner.addBytes(-bytes) }
	}
	m.large <- struct{}{}
	m.tuner.addBytes(bytes)
	return func() {
		m.tuner.addBytes(-bytes)
		<-m.large
	}
}
