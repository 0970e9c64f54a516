package db_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestSpans checks that each recorded write has a span named after its statements, to which the span of its commit is a
// child or linked, and that other writes have none.
func TestSpans(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		seen := tracetest.NewSpanRecorder()
		tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(seen)).Tracer("test")
		var all sync.WaitGroup
		const calls = 20
		for i := range calls {
			for _, recorded := range []bool{true, false} {
				all.Go(func() {
					ctx := context.Background()
					if recorded {
						ctx, _ = tracer.Start(ctx, "call")
					}
					var b db.Batch
					insertTask(&b, "alice", fmt.Sprint("canary", i, recorded))
					b.Query(func(db.Row) error { return nil }, `SELECT id FROM task WHERE tenant = $1`, "alice")
					if err := d.Tenant("alice").Write(ctx, &b); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		for began := time.Now(); time.Since(began) < 5*time.Second && len(seen.Ended()) < len(seen.Started())-calls; {
			time.Sleep(time.Millisecond) // a commit's span ends after its callers have returned
		}
		commits, writes := map[string]bool{}, 0
		for _, s := range seen.Ended() {
			if s.Name() == "commit" {
				commits[s.SpanContext().SpanID().String()], commits[s.Parent().SpanID().String()] = true, true
			}
		}
		for _, s := range seen.Ended() {
			if s.Name() == "commit" {
				continue
			}
			writes++
			if s.Name() != "INSERT task, SELECT task" {
				t.Errorf("a write is called %q", s.Name())
			}
			known := commits[s.SpanContext().SpanID().String()]
			for _, l := range s.Links() {
				known = known || commits[l.SpanContext.SpanID().String()]
			}
			if !known {
				t.Error("a write does not lead to its commit")
			}
		}
		if writes != calls || len(commits) == 0 {
			t.Errorf("%d writes are recorded in %d commits, want %d", writes, len(commits)/2, calls)
		}
	})
}

// TestSpanNames checks that the name of a span contains verbs and tables and no values.
func TestSpanNames(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		`SELECT EXISTS (SELECT 1 FROM task WHERE id = $1)`:                                                    "SELECT task",
		`UPDATE run SET state = 'x' WHERE task IN (SELECT id FROM task)`:                                      "UPDATE run",
		`DELETE FROM worker WHERE heartbeat_at < stoa_now()`:                                                  "DELETE worker",
		`WITH due AS (SELECT task FROM run FOR UPDATE SKIP LOCKED) UPDATE run SET worker = $1 RETURNING task`: "UPDATE run",
		`INSERT INTO worker (id) VALUES ($1) ON CONFLICT (id) DO UPDATE SET beats = 1`:                        "INSERT worker",
		`WITH t AS (INSERT INTO task (id) VALUES ($1)) INSERT INTO run (task) SELECT id FROM (SELECT 1) AS v`: "INSERT task, INSERT run",
		`SELECT stoa_now()`: "SELECT",
	} {
		if got := db.SummarizeSQL(sql); got != want {
			t.Errorf("%s is called %q, want %q", sql, got, want)
		}
	}
}

// TestGrouped checks that OnCommit gets the number of writes in each commit.
func TestGrouped(t *testing.T) {
	t.Parallel()
	var commits, writes atomic.Int64
	d, err := db.Open(t.Context(), "sqlite://:memory:", db.Options{OnCommit: func(_ context.Context, n int) {
		commits.Add(1)
		writes.Add(int64(n))
	}})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			var b db.Batch
			b.Exec(nil, `SELECT 1`)
			if err := d.Platform().Write(context.Background(), &b); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if writes.Load() != 50 || commits.Load() == 0 || commits.Load() > 50 {
		t.Errorf("%d writes in %d commits", writes.Load(), commits.Load())
	}
}
