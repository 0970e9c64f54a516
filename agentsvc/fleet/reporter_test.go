package fleet

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// newTestReporter returns the reporter of a process of d that has just started.
func newTestReporter(d *db.DB, id string) *Reporter {
	return NewReporter(Options{DB: d, Recorder: NewRecorder(), Process: Process{ID: id, Version: "v1.2.3", Commit: "abc", Role: "all", Migration: 7}, Log: slog.New(slog.DiscardHandler)})
}

func requireReport(t *testing.T, r *Reporter, now time.Time) {
	t.Helper()
	if err := r.report(t.Context(), now); err != nil {
		t.Fatal(err)
	}
}

func execSQL(t *testing.T, d *db.DB, statement string, args ...any) {
	t.Helper()
	var b db.Batch
	b.Exec(nil, statement, args...)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

func requireTotal(t *testing.T, d *db.DB, window time.Duration) Counts {
	t.Helper()
	all, err := LoadTraffic(t.Context(), d, window)
	if err != nil {
		t.Fatal(err)
	}
	return all.Total()
}

// TestTraffic: any process reads the sum of what all have counted, also of those that have stopped, within a window;
// calls that are counted while a period ends are in it, and old periods are deleted.
func TestTraffic(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		one, two := newTestReporter(d, "one"), newTestReporter(d, "two")
		count := func(r *Reporter, calls int) {
			for range calls {
				r.options.Recorder.RecordCall("acme", Succeeded, 100*time.Millisecond)
			}
		}
		now := time.Now()
		count(one, 3)
		count(two, 2)
		requireReport(t, one, now)
		requireReport(t, one, now)
		requireReport(t, two, now)
		if got := requireTotal(t, d, time.Minute); got.Calls != 5 {
			t.Errorf("%d calls", got.Calls)
		}
		count(one, 1)
		during := one.options.Recorder.current.Load().cellOf("acme")
		requireReport(t, one, now.Add(2*periodTime)) // ends the period
		during.calls[Failed].Add(1)                  // by a call that had its cell before
		count(one, 10)
		requireReport(t, one, now.Add(2*periodTime))
		got, err := LoadTraffic(t.Context(), d, time.Hour)
		want := Traffic{Apps: map[string]Counts{"acme": {Calls: 17, Failed: 1, CallTimes: Histogram{bucketOf(100 * time.Millisecond): 16}}}}
		if diff := cmp.Diff(want, got.Traffic); err != nil || diff != "" {
			t.Errorf("(%v)\n%s", err, diff)
		}
		if err := two.stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		execSQL(t, d, `UPDATE traffic SET started_at = started_at - CAST($1 AS BIGINT) WHERE process = 'two'`, (10 * time.Minute).Microseconds())
		if got := requireTotal(t, d, 5*time.Minute); got.Calls != 15 {
			t.Errorf("%d calls in the last five minutes", got.Calls)
		}
		if got := requireTotal(t, d, MaxWindow); got.Calls != 17 {
			t.Errorf("%d calls in the last hour", got.Calls)
		}
		execSQL(t, d, `UPDATE traffic SET started_at = started_at - CAST($1 AS BIGINT) WHERE process = 'two'`, MaxWindow.Microseconds())
		requireReport(t, one, now.Add(4*periodTime))
		execSQL(t, d, `UPDATE traffic SET started_at = stoa_now()`)
		if got := requireTotal(t, d, MaxWindow); got.Calls != 15 {
			t.Errorf("%d calls after the old ones were deleted", got.Calls)
		}
	})
}

// TestPeriodsFollowMinutes: a period ends with the first report of a new minute, however long it was, so that each minute with
// calls has a row.
func TestPeriodsFollowMinutes(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	r := newTestReporter(d, "one")
	minute := time.Date(2026, 11, 24, 10, 1, 0, 0, time.UTC)
	r.startedAt = minute.Add(47 * time.Second)
	for _, tt := range []struct {
		after time.Duration
		want  int64 // the period after the report
	}{{57 * time.Second, 1}, {67 * time.Second, 2}, {77 * time.Second, 2}, {119 * time.Second, 2}, {120 * time.Second, 3}, {189 * time.Second, 4}} {
		r.options.Recorder.RecordCall("acme", Succeeded, -1)
		requireReport(t, r, minute.Add(tt.after))
		if r.number != tt.want {
			t.Errorf("after %v: period %d, want %d", tt.after, r.number, tt.want)
		}
	}
}

// TestReportAfterOutage: what was counted while the database did not answer is written afterwards.
func TestReportAfterOutage(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	r := newTestReporter(d, "one")
	r.options.Recorder.RecordCall("acme", Failed, -1)
	now := time.Now()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 3 {
		if err := r.report(ended, now.Add(time.Duration(i)*periodTime)); err == nil {
			t.Fatal("a report without a database succeeds")
		}
	}
	requireReport(t, r, now.Add(4*periodTime))
	if got := requireTotal(t, d, time.Minute); got.Calls != 1 || got.Failed != 1 {
		t.Errorf("%+v", got)
	}
}

// TestProcesses: the list has what each process is and does, its leases and runs; one that stops is not in it any more,
// one that was killed is for an hour.
func TestProcesses(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		stopping := false
		one, two := newTestReporter(d, "one"), newTestReporter(d, "two")
		two.options.AwaitsRestart = func() []string { return []string{"logger"} }
		two.options.IsStopping = func() bool { return stopping }
		requireReport(t, one, time.Now())
		requireReport(t, two, time.Now())
		stopping = true
		requireReport(t, two, time.Now())
		execSQL(t, d, `INSERT INTO duty (name, holder, until) VALUES ('sweep', 'one', stoa_now() + 60000000), ('audit', 'two', stoa_now() + 60000000), ('expired', 'one', stoa_now() - 1)`)
		execSQL(t, d, `INSERT INTO run (tenant, task, turn, state, attempts, revision, first_seq, worker, available_at, last_error, created_at) VALUES ('acme', 't', 1, 'running', 1, 1, 1, 'one', 0, '', 0)`)
		load := func() Fleet {
			t.Helper()
			f, err := Load(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		f := load()
		ignore := cmpopts.IgnoreFields(Process{}, "StartedAt", "SeenAt", "StoppingAt", "Silent", "Host")
		want := []Process{
			{ID: "two", Version: "v1.2.3", Commit: "abc", Role: "all", Migration: 7, AwaitsRestart: []string{"logger"}},
			{ID: "one", Version: "v1.2.3", Commit: "abc", Role: "all", Migration: 7, Runs: 1},
		}
		if diff := cmp.Diff(want, f.Processes, ignore); diff != "" {
			t.Error(diff)
		}
		if two, one := f.Processes[0], f.Processes[1]; two.Status() != Stopping || one.Status() != Serving || one.StartedAt.After(one.SeenAt) || one.Host == "" {
			t.Errorf("%s %s %+v", two.Status(), one.Status(), one)
		}
		if diff := cmp.Diff([]Lease{{Name: "audit", Process: "two"}, {Name: "sweep", Process: "one"}}, f.Leases, cmpopts.IgnoreFields(Lease{}, "ExpiresAt")); diff != "" {
			t.Error(diff)
		}
		if f.Schema.Migration < 7 || f.Schema.Dirty {
			t.Errorf("%+v", f.Schema)
		}

		if err := two.stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		execSQL(t, d, `UPDATE process SET seen_at = seen_at - CAST($1 AS BIGINT)`, (2 * lostAfter).Microseconds())
		if f = load(); len(f.Processes) != 1 || f.Processes[0].Status() != Lost {
			t.Errorf("%+v", f.Processes)
		}
		execSQL(t, d, `UPDATE process SET seen_at = seen_at - CAST($1 AS BIGINT)`, MaxWindow.Microseconds())
		three := newTestReporter(d, "three")
		requireReport(t, three, time.Now().Add(2*periodTime))
		if f = load(); len(f.Processes) != 1 || f.Processes[0].ID != "three" {
			t.Errorf("%+v", f.Processes)
		}
	})
}

// TestRun: a running reporter writes at once, and deletes its row when it ends.
func TestRun(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	r := newTestReporter(d, "one")
	reported := make(chan struct{}, 10)
	r.options.AwaitsRestart = func() []string { reported <- struct{}{}; return nil }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	<-reported
	r.Wake()
	<-reported // the first one has been written
	if f, err := Load(t.Context(), d); err != nil || len(f.Processes) != 1 {
		t.Errorf("%+v %v", f.Processes, err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if f, err := Load(t.Context(), d); err != nil || len(f.Processes) != 0 {
		t.Errorf("after the end: %+v %v", f.Processes, err)
	}
}
