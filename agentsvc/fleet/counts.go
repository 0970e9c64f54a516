package fleet

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// Counts are what happened in a time. They are stored as JSON: a member may be added, and one that is missing is zero.
type Counts struct {
	// Calls are the requests to agents. Failed, Refused and Rejected are those among them that were answered with an
	// error: of the server, by a limit or a budget, and of the caller.
	Calls    int64 `json:"calls,omitempty"`
	Failed   int64 `json:"failed,omitempty"`
	Refused  int64 `json:"refused,omitempty"`
	Rejected int64 `json:"rejected,omitempty"`
	// Runs are attempts of runs that ended, FailedRuns those that failed or will be retried.
	Runs       int64 `json:"runs,omitempty"`
	FailedRuns int64 `json:"failed_runs,omitempty"`
	// CallTimes are the durations of calls without streams, RunTimes those of attempts.
	CallTimes Histogram `json:"call_times,omitempty"`
	RunTimes  Histogram `json:"run_times,omitempty"`
}

// Add adds o.
func (c *Counts) Add(o Counts) {
	c.Calls, c.Failed, c.Refused, c.Rejected = c.Calls+o.Calls, c.Failed+o.Failed, c.Refused+o.Refused, c.Rejected+o.Rejected
	c.Runs, c.FailedRuns = c.Runs+o.Runs, c.FailedRuns+o.FailedRuns
	c.CallTimes, c.RunTimes = c.CallTimes.plus(o.CallTimes), c.RunTimes.plus(o.RunTimes)
}

// isEmpty reports whether nothing happened.
func (c *Counts) isEmpty() bool { return c.Calls == 0 && c.Runs == 0 }

// compareTrouble orders counts by what an operator should see first: failures, then refusals, then the busiest.
func compareTrouble(a, b Counts) int {
	return cmp.Or(cmp.Compare(b.Failed+b.FailedRuns, a.Failed+a.FailedRuns), cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Calls+b.Runs, a.Calls+a.Runs))
}

// Histogram counts durations by bucket. The upper bound of bucket i is 2^(i/4) ms: buckets are 19% wide, so that a
// quantile is wrong by at most 9%.
type Histogram map[int]int64

const (
	bucketsPerDoubling = 4
	// bucketCount buckets reach to 3.9 hours; the last one has all that is longer.
	bucketCount = 24*bucketsPerDoubling - 1
)

// bucketOf returns the bucket of a duration.
func bucketOf(d time.Duration) int {
	ms := float64(d) / float64(time.Millisecond)
	if ms <= 1 {
		return 0
	}
	return min(int(math.Ceil(bucketsPerDoubling*math.Log2(ms))), bucketCount-1)
}

// plus returns the sum of both. It may change and return h.
func (h Histogram) plus(o Histogram) Histogram {
	if len(o) > 0 && h == nil {
		h = Histogram{}
	}
	for i, n := range o {
		h[i] += n
	}
	return h
}

// Quantile returns a duration that the part q of the counted ones, from 0 to 1, do not exceed: the middle of their
// bucket. It returns false if none were counted.
func (h Histogram) Quantile(q float64) (time.Duration, bool) {
	var total, seen int64
	for _, n := range h {
		total += n
	}
	if total == 0 {
		return 0, false
	}
	rank := max(1, int64(math.Ceil(q*float64(total))))
	buckets := slices.Sorted(maps.Keys(h))
	last := buckets[len(buckets)-1]
	for _, i := range buckets {
		if seen += h[i]; seen >= rank {
			last = i
			break
		}
	}
	return time.Duration(math.Exp2((float64(last)-.5)/bucketsPerDoubling) * float64(time.Millisecond)), true
}

// Traffic are counts by app.
type Traffic struct {
	// Apps are by name.
	Apps map[string]Counts `json:"apps"`
	// Rest are those of apps beyond the bounds of Apps together.
	Rest Counts `json:"rest,omitzero"`
}

// add adds o.
func (t *Traffic) add(o Traffic) {
	if t.Apps == nil {
		t.Apps = map[string]Counts{}
	}
	for app, c := range o.Apps {
		sum := t.Apps[app]
		sum.Add(c)
		t.Apps[app] = sum
	}
	t.Rest.Add(o.Rest)
}

// Total returns the counts of all apps together.
func (t *Traffic) Total() Counts {
	var sum Counts
	sum.Add(t.Rest)
	for _, c := range t.Apps {
		sum.Add(c)
	}
	return sum
}

// Names returns the names of the apps, those with the most trouble first.
func (t *Traffic) Names() []string {
	return slices.SortedFunc(maps.Keys(t.Apps), func(a, b string) int {
		return cmp.Or(compareTrouble(t.Apps[a], t.Apps[b]), cmp.Compare(a, b))
	})
}

// Limit moves the apps beyond the first most, by trouble, to Rest.
func (t *Traffic) Limit(most int) {
	if len(t.Apps) <= most {
		return
	}
	for _, app := range t.Names()[most:] {
		t.Rest.Add(t.Apps[app])
		delete(t.Apps, app)
	}
}

// Window is what all processes have counted in a time until now.
type Window struct {
	Traffic
	// Minutes are the minutes of UTC in the window without a gap, the oldest first. The last is not over, and what was counted in
	// the part of a minute with which the window begins is in Traffic alone.
	Minutes []Minute
}

// Minute are the calls of all apps in about a minute: they are counted in the one in which a process has written the first of
// its calls, up to ten seconds after it.
type Minute struct {
	Start time.Time
	// The members are those of [Counts].
	Calls, Failed, Refused, Rejected int64
}

// newMinutes returns n minutes without calls, of which now is in the last.
func newMinutes(now time.Time, n int) []Minute {
	all := make([]Minute, n)
	for i := range all {
		all[i].Start = now.Truncate(time.Minute).Add(time.Duration(i+1-n) * time.Minute)
	}
	return all
}

// addToMinute adds what was counted in the minute of a time, if it is one of w.
func (w *Window) addToMinute(at time.Time, t Traffic) {
	if len(w.Minutes) == 0 || at.Before(w.Minutes[0].Start) {
		return
	}
	m := &w.Minutes[min(int(at.Sub(w.Minutes[0].Start)/time.Minute), len(w.Minutes)-1)]
	c := t.Total()
	m.Calls, m.Failed, m.Refused, m.Rejected = m.Calls+c.Calls, m.Failed+c.Failed, m.Refused+c.Refused, m.Rejected+c.Rejected
}
