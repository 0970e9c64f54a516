package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestQuantile compares quantiles of durations from below a millisecond to hours with exact ones: they are wrong by 10%
// at most, and by what is below a millisecond.
func TestQuantile(t *testing.T) {
	t.Parallel()
	if d, ok := (Histogram)(nil).Quantile(.5); ok || d != 0 {
		t.Errorf("of nothing: %v %v", d, ok)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, span := range []time.Duration{time.Millisecond, time.Second, 3 * time.Hour} {
		var all []time.Duration
		h := Histogram{}
		for range 1000 {
			d := time.Duration(random.Int64N(int64(span)))
			all = append(all, d)
			h[bucketOf(d)]++
		}
		slices.Sort(all)
		for _, q := range []float64{0, .5, .99, 1} {
			exact := all[max(0, int(q*1000)-1)]
			got, ok := h.Quantile(q)
			if diff := max(got-exact, exact-got); !ok || diff > exact/10+time.Millisecond {
				t.Errorf("%v of up to %v: %v, exactly %v", q, span, got, exact)
			}
		}
	}
	if longest, _ := (Histogram{bucketOf(1000 * time.Hour): 1}).Quantile(.5); longest < 3*time.Hour {
		t.Errorf("a very long call has %v", longest)
	}
}

// TestTrouble: the apps with failures come first, then those that limits refuse, then the busiest; what is beyond a bound
// is in the rest, so that the total stays the same.
func TestTrouble(t *testing.T) {
	t.Parallel()
	all := Traffic{Apps: map[string]Counts{"busy": {Calls: 100}, "failing": {Calls: 1, Failed: 1}, "idle": {Calls: 1}, "refused": {Calls: 9, Refused: 3}, "runs": {Runs: 4, FailedRuns: 3}}}
	if diff := cmp.Diff([]string{"runs", "failing", "refused", "busy", "idle"}, all.Names()); diff != "" {
		t.Error(diff)
	}
	total := all.Total()
	all.Limit(3)
	if diff := cmp.Diff([]string{"runs", "failing", "refused"}, all.Names()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Counts{Calls: 101}, all.Rest); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(total, all.Total()); diff != "" {
		t.Error(diff)
	}
}

// TestRecorderIsBounded counts more apps than are counted by name: none of the calls is lost.
func TestRecorderIsBounded(t *testing.T) {
	t.Parallel()
	r := NewRecorder()
	const apps = maxRecordedApps + 500
	for i := range apps {
		r.RecordCall(fmt.Sprint("app-", i), Succeeded, time.Second)
	}
	for range 5 {
		r.RecordCall("app-700", Failed, -1)
	}
	got := r.next().read()
	if len(got.Apps) != maxStoredApps || got.Names()[0] != "app-700" {
		t.Errorf("%d apps by name, first %s", len(got.Apps), got.Names()[0])
	}
	if sum := got.Total(); sum.Calls != apps+5 || sum.Failed != 5 || sum.CallTimes[bucketOf(time.Second)] != apps {
		t.Errorf("%+v", sum)
	}
	if left := r.current.Load().read(); len(left.Apps) > 0 {
		t.Errorf("the next period has %v", left)
	}
}

// TestRecorderLosesNothing counts in several goroutines while periods end; each is read twice, as the reporter does.
func TestRecorderLosesNothing(t *testing.T) {
	t.Parallel()
	r := NewRecorder()
	const calls, goroutines = 20_000, 4
	done := make(chan struct{}, goroutines)
	for range goroutines {
		go func() {
			for i := range calls {
				r.RecordCall(fmt.Sprint("app-", i%3), Outcome(i%4), time.Duration(i))
				r.RecordRun("app-0", i%2 == 0, time.Duration(i))
			}
			done <- struct{}{}
		}()
	}
	var sum Traffic
	var ended []*period
	for finished := 0; finished < goroutines; {
		select {
		case <-done:
			finished++
		default:
			ended = append(ended, r.next())
		}
	}
	for _, p := range append(ended, r.next()) {
		sum.add(p.read())
	}
	if got := sum.Total(); got.Calls != calls*goroutines || got.Failed != calls*goroutines/4 || got.Runs != calls*goroutines || got.FailedRuns != calls*goroutines/2 {
		t.Errorf("%+v", got)
	}
}

func BenchmarkRecordCall(b *testing.B) {
	r := NewRecorder()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.RecordCall("acme", Succeeded, 137*time.Millisecond)
		}
	})
}
