package metrics

import (
	"context"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"stoa/billing/budget"
	"stoa/billing/export"
	"stoa/tenancy/db/dbtest"
)

// TestFrozenDatabase reads the metrics while every query waits for a database that does not answer: only the first one
// is waited for, so the page comes within the bound of one query, and without a query until it may be tried again.
func TestFrozenDatabase(t *testing.T) {
	t.Parallel()
	var queries atomic.Int64
	wait := func(ctx context.Context) error {
		queries.Add(1)
		<-ctx.Done()
		return ctx.Err()
	}
	m, err := NewRecorder(true)
	if err != nil {
		t.Fatal(err)
	}
	err = m.RegisterGauges(Sources{
		DB: dbtest.NewSQLite(t), RunsInflight: func() int { return 0 }, StreamsOpen: func() int64 { return 7 },
		Connections: func() (int64, map[string]int64) { return 0, nil }, AppsLoaded: func() int64 { return 0 },
		AuditFlaws:   func(ctx context.Context) (int64, error) { return 0, wait(ctx) },
		UsagePending: func() (int64, int64) { return 3, 2 }, WritesRefused: func() int64 { return 0 },
		CertificateExpiry: func() time.Time { return time.Time{} },
		MasterKeys:        func() (int, int) { return 0, 0 },
		Version:           "v1.2.3", Commit: "abc123",
		OldestDocument:  func(ctx context.Context) (time.Duration, error) { return 0, wait(ctx) },
		Exports:         func(ctx context.Context) ([]export.Status, error) { return nil, wait(ctx) },
		TightestBudgets: func(ctx context.Context, _ int) ([]budget.TightBudget, error) { return nil, wait(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		for _, line := range []string{
			"stoa_streams_open 7", `stoa_build_info{commit="abc123",go_version="` + runtime.Version() + `",version="v1.2.3"} 1`, "stoa_usage_pending 3", "stoa_usage_lost_total 2",
		} {
			if w.Code != 200 || !strings.Contains(w.Body.String(), line+"\n") {
				t.Errorf("%d: the page lacks %s, which needs no query:\n%s", w.Code, line, w.Body)
			}
		}
		if n := queries.Load(); n != 1 {
			t.Errorf("%d queries were waited for, want 1", n)
		}
	}
}
