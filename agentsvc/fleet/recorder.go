package fleet

import (
	"sync"
	"sync/atomic"
	"time"
)

// Outcome is how a call ended.
type Outcome int

const (
	// Succeeded is also a call whose client went away.
	Succeeded Outcome = iota
	// Failed is an error of the server.
	Failed
	// Refused is a limit or a budget that was reached.
	Refused
	// Rejected is an error of the caller.
	Rejected
)

// Bounds of the apps that are counted by name: in memory, where an app has about 800 bytes, and in a stored row. Those
// with the most trouble are stored.
const (
	maxRecordedApps = 1000
	maxStoredApps   = 200
)

// Recorder counts the calls and runs of this process. A count costs a look into a map and an atomic addition or two. It is
// safe for concurrent use.
type Recorder struct{ current atomic.Pointer[period] }

// NewRecorder returns a recorder that has counted nothing.
func NewRecorder() *Recorder {
	r := &Recorder{}
	r.current.Store(&period{})
	return r
}

// RecordCall counts a request to an agent of an app. took is how long it took, negative for a stream, which lasts as long
// as its reader wants.
func (r *Recorder) RecordCall(app string, outcome Outcome, took time.Duration) {
	c := r.current.Load().cellOf(app)
	c.calls[outcome].Add(1)
	if took >= 0 {
		c.callTimes[bucketOf(took)].Add(1)
	}
}

// RecordRun counts an attempt of a run of an app.
func (r *Recorder) RecordRun(app string, failed bool, took time.Duration) {
	c := r.current.Load().cellOf(app)
	c.runTimes[bucketOf(took)].Add(1)
	if failed {
		c.failedRuns.Add(1)
	}
}

// next begins another period and returns the one before. Calls that are being counted may still be added to it for a
// moment.
func (r *Recorder) next() *period { return r.current.Swap(&period{}) }

// period has the counts of a time, by app.
type period struct {
	apps sync.Map // of *cell by name
	// named is how many apps are in apps, at most maxRecordedApps; the others are counted in rest.
	named atomic.Int64
	rest  cell
}

// cell has the counts of an app.
type cell struct {
	calls      [Rejected + 1]atomic.Uint32 // by outcome
	failedRuns atomic.Uint32
	callTimes  [bucketCount]atomic.Uint32
	runTimes   [bucketCount]atomic.Uint32
}

// cellOf returns the cell of an app.
func (p *period) cellOf(app string) *cell {
	if c, ok := p.apps.Load(app); ok {
		return c.(*cell)
	}
	if p.named.Add(1) > maxRecordedApps {
		p.named.Add(-1)
		return &p.rest
	}
	c, loaded := p.apps.LoadOrStore(app, &cell{})
	if loaded {
		p.named.Add(-1)
	}
	return c.(*cell)
}

// read returns what was counted, of at most maxStoredApps apps by name.
func (p *period) read() Traffic {
	t := Traffic{Apps: map[string]Counts{}, Rest: p.rest.read()}
	for app, c := range p.apps.Range {
		if counts := c.(*cell).read(); !counts.isEmpty() {
			t.Apps[app.(string)] = counts
		}
	}
	t.Limit(maxStoredApps)
	return t
}

// read returns what was counted.
func (c *cell) read() Counts {
	out := Counts{
		Failed: int64(c.calls[Failed].Load()), Refused: int64(c.calls[Refused].Load()), Rejected: int64(c.calls[Rejected].Load()), FailedRuns: int64(c.failedRuns.Load()),
		CallTimes: readBuckets(&c.callTimes), RunTimes: readBuckets(&c.runTimes),
	}
	out.Calls = int64(c.calls[Succeeded].Load()) + out.Failed + out.Refused + out.Rejected
	for _, n := range out.RunTimes {
		out.Runs += n
	}
	return out
}

// readBuckets returns the buckets that are not empty, nil if all are.
func readBuckets(buckets *[bucketCount]atomic.Uint32) (h Histogram) {
	for i := range buckets {
		if n := buckets[i].Load(); n > 0 {
			if h == nil {
				h = Histogram{}
			}
			h[i] = int64(n)
		}
	}
	return h
}
