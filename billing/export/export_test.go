package export_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"stoa/agentsvc/agentsvctest"

	"stoa/billing/budget/budgettest"
	"stoa/billing/export"
	"stoa/billing/export/exporttest"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// flakySink is a sink that can fail before or after it has accepted a batch.
type flakySink struct {
	mu       sync.Mutex
	failures []string // the failures of the next calls: before, after
	batches  map[int64]string
	ids      map[string]int
}

func (s *flakySink) Send(_ context.Context, b export.Batch) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what := ""
	if len(s.failures) > 0 {
		what, s.failures = s.failures[0], s.failures[1:]
	}
	if what == "before" {
		return 0, errors.New("no")
	}
	var content []string
	for _, row := range b.Rows {
		content = append(content, row.ID())
	}
	text := strings.Join(content, " ")
	if before, again := s.batches[b.Number]; again && before != text {
		return 0, fmt.Errorf("batch %d was %s and is %s", b.Number, before, text)
	} else if !again {
		for _, id := range content {
			s.ids[id]++
		}
	}
	s.batches[b.Number] = text
	if what == "after" {
		return 0, errors.New("lost the answer")
	}
	return 0, nil
}

func (s *flakySink) wantRows(t *testing.T, rows int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ids) != rows {
		t.Errorf("%d rows came, want %d", len(s.ids), rows)
	}
	for id, n := range s.ids {
		if n != 1 {
			t.Errorf("row %s came %d times", id, n)
		}
	}
}

// TestExport exports from two processes to a sink that fails sometimes: each row must arrive once, in one batch.
func TestExport(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, ctx := budgettest.OpenPriced(t, d), t.Context()
		r := &flakySink{batches: map[int64]string{}, ids: map[string]int{}, failures: []string{"before", "", "after", "after", ""}}
		one, two := exporttest.NewExporter(d, s, map[string]export.Sink{"x": r}), exporttest.NewExporter(d, s, map[string]export.Sink{"x": r})
		apps := []tenancy.App{usagetest.InsertApp(t, d, "{}"), usagetest.InsertApp(t, d, "{}")}
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, apps[0], usagetest.DateIn2026(1, 1), 3), one.DeliverAll(ctx)) // recorded before the export began
		r.wantRows(t, 0)
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, apps[0], usagetest.DateIn2026(1, 2), 400), usagetest.RecordCalls(ctx, s.Usage, apps[1], usagetest.DateIn2026(1, 3), 300), usagetest.RecordCalls(ctx, s.Usage, tenancy.App{ID: tenancy.DefaultID}, usagetest.DateIn2026(1, 4), 5))
		for range 4 {
			if err := one.DeliverAll(ctx); err == nil {
				break
			} else if list := exporttest.ListExports(t, d); len(list) != 1 || list[0].Error == "" || !list[0].Pending {
				t.Errorf("after %v: %+v", err, list)
			}
			agentsvctest.RequireNoErrors(t, two.DeliverAll(ctx)) // the other process has the claim
		}
		r.wantRows(t, 705)
		agentsvctest.RequireNoErrors(t, one.DeliverAll(ctx), usagetest.RecordCalls(ctx, s.Usage, apps[1], usagetest.DateIn2026(1, 3), 2), one.DeliverAll(ctx))
		r.wantRows(t, 707)
		list := exporttest.ListExports(t, d)
		if list[0].Rows != 707 || list[0].Pending || list[0].Error != "" || list[0].Batch != 3 {
			t.Errorf("%+v", list)
		}
		// One process ends within a batch whose outcome is unknown; the other one continues with that batch.
		r.failures = []string{"after"}
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, apps[0], usagetest.DateIn2026(2, 2), 4))
		if err := one.DeliverAll(ctx); err == nil {
			t.Error("nothing went wrong")
		}
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, apps[0], usagetest.DateIn2026(2, 2), 4))
		var b db.Batch
		b.Exec(nil, `UPDATE export SET until = 0`)
		agentsvctest.RequireNoErrors(t, d.Platform().Do(ctx, &b), two.DeliverAll(ctx), one.DeliverAll(ctx))
		r.wantRows(t, 715)
	})
}

// TestExportUnderWay writes usage while it is exported.
func TestExportUnderWay(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app := budgettest.OpenPriced(t, d), usagetest.InsertApp(t, d, "{}")
		r := &flakySink{batches: map[int64]string{}, ids: map[string]int{}}
		e := exporttest.NewExporter(d, s, map[string]export.Sink{"x": r})
		agentsvctest.RequireNoErrors(t, e.DeliverAll(t.Context()))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for range 20 {
					if err := usagetest.RecordCalls(t.Context(), s.Usage, app, time.Now(), 2); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for range 10 {
			agentsvctest.RequireNoErrors(t, e.DeliverAll(t.Context()))
		}
		wg.Wait()
		agentsvctest.RequireNoErrors(t, e.DeliverAll(t.Context()))
		r.wantRows(t, 120)
	})
}

// TestExportRun starts and stops an exporter whose sink always fails.
func TestExportRun(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	s := budgettest.OpenPriced(t, d)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	e := exporttest.NewExporter(d, s, map[string]export.Sink{"x": &flakySink{failures: slices.Repeat([]string{"before"}, 1000)}})
	if err := e.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

// sinkFunc is a sink that accepts everything.
type sinkFunc func(export.Batch)

// Send implements [export.Sink].
func (f sinkFunc) Send(_ context.Context, b export.Batch) (int, error) {
	f(b)
	return 0, nil
}

// TestExportFairness checks that the rows of an app with little usage wait for one batch of an app with much usage, not
// for all of its batches.
func TestExportFairness(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	s, ctx := budgettest.OpenPriced(t, d), t.Context()
	of := map[db.ID][]int64{}
	x := exporttest.NewExporter(d, s, map[string]export.Sink{"x": sinkFunc(func(b export.Batch) {
		for _, r := range b.Rows {
			of[r.AppID] = append(of[r.AppID], b.Number)
		}
	})})
	agentsvctest.RequireNoErrors(t, x.DeliverAll(ctx))
	var apps []tenancy.App
	for i := range 5 {
		app := usagetest.InsertApp(t, d, "{}")
		apps = append(apps, app)
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 2), []int{1, 1, 1800, 1, 1}[i]))
	}
	agentsvctest.RequireNoErrors(t, x.DeliverAll(ctx))
	for i, app := range apps {
		if got := of[app.ID]; i != 2 && (len(got) != 1 || got[0] > 2) || i == 2 && len(got) != 1800 {
			t.Errorf("app %d is in the batches %v", i, got)
		}
	}
}

// TestExportOfKilledProcess checks that the export of a process which was killed while it waited for usage can be taken over
// soon, and that the lag says when no process delivers.
func TestExportOfKilledProcess(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, ctx := budgettest.OpenPriced(t, d), t.Context()
		sinks := map[string]export.Sink{"x": &flakySink{batches: map[int64]string{}, ids: map[string]int{}}}
		killed, other := exporttest.NewExporter(d, s, sinks), exporttest.NewExporter(d, s, sinks)
		agentsvctest.RequireNoErrors(t, killed.DeliverAll(ctx), usagetest.RecordCalls(ctx, s.Usage, usagetest.InsertApp(t, d, "{}"), time.Now(), 1), killed.DeliverAll(ctx))
		var left int64
		var b db.Batch
		b.Query(func(r db.Row) error { return r.Scan(&left) }, `SELECT until - stoa_now() FROM export`)
		agentsvctest.RequireNoErrors(t, d.Platform().Do(ctx, &b))
		if claimed := time.Duration(left) * time.Microsecond; claimed <= 0 || claimed > 30*time.Second {
			t.Errorf("a process without usage to deliver keeps its claim for %v", claimed)
		}
		var later db.Batch
		later.Exec(nil, `UPDATE export SET until = stoa_now() - 60000000`)
		agentsvctest.RequireNoErrors(t, d.Platform().Do(ctx, &later))
		if lag := exporttest.ListExports(t, d)[0].Lag; lag < time.Minute || lag > time.Hour {
			t.Errorf("a minute after the claim ended the lag is %v", lag)
		}
		agentsvctest.RequireNoErrors(t, other.DeliverAll(ctx))
		if lag := exporttest.ListExports(t, d)[0].Lag; lag != 0 {
			t.Errorf("after another process took over the lag is %v", lag)
		}
	})
}

// TestExportFigures checks what metrics show of an export: delivered batches, failures, and the age of what waits.
func TestExportFigures(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, ctx := budgettest.OpenPriced(t, d), t.Context()
		app, outcomes := usagetest.InsertApp(t, d, "{}"), map[bool]int{}
		sink := &flakySink{batches: map[int64]string{}, ids: map[string]int{}, failures: []string{"before", "before"}}
		e := export.New(d, s.Budgets, usagetest.Log).NewExporter(map[string]export.Sink{"x": sink}, func(name string, err error) { outcomes[name == "x" && err == nil]++ })
		agentsvctest.RequireNoErrors(t, e.DeliverAll(ctx), usagetest.RecordCalls(ctx, s.Usage, app, time.Now(), 600)) // two batches
		for range 2 {
			if err := e.DeliverAll(ctx); err == nil {
				t.Error("a failure is no error")
			}
			if lag := exporttest.ListExports(t, d)[0].Lag; lag <= 0 || lag > time.Hour {
				t.Errorf("while a batch waits the lag is %v", lag)
			}
		}
		agentsvctest.RequireNoErrors(t, e.DeliverAll(ctx), e.DeliverAll(ctx))
		if lag := exporttest.ListExports(t, d)[0].Lag; lag != 0 {
			t.Errorf("when all is delivered the lag is %v", lag)
		}
		if outcomes[true] != 2 || outcomes[false] != 2 {
			t.Errorf("%d batches delivered and %d failures, want 2 of each", outcomes[true], outcomes[false])
		}
	})
}
