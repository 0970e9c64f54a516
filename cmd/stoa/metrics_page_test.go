package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/document/indexing"
	"stoa/agentsvc/document/retrieval"
	"stoa/agentsvc/guardrail"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
	"stoa/cmd/stoa/server/metrics"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

//go:generate go test -run TestMetricsPage -update .

var updatePage = flag.Bool("update", false, "write the table of docs/metrics.md")

const metricsHeading = "## Every metric\n"

// openExercisedServer starts a server on PostgreSQL and exercises it until every metric has a value. It sets an environment
// variable, therefore its tests are not parallel.
func openExercisedServer(t *testing.T) *testServer {
	t.Helper()
	t.Setenv("STOA_EXPORT_FOLDER", t.TempDir())
	h := openTestServer(t, dbtest.NewPostgresURL(t))
	h.requireStatus(t, 200, nil, "POST", "/agents/assistant", "", newRPCCall("message:send", newTextMessage("hello")))
	h.requireStatus(t, 201, nil, "POST", "/admin/apps/default/budgets", testSecret, map[string]any{"name": "cap", "unit": "calls", "amount": 4, "window": "total"})
	// A run that waits for its next attempt, an export, and a used budget.
	if err := h.db.Platform().RunTx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO run (tenant, task, turn, state, attempts, revision, first_seq, worker, available_at, ready, last_error, created_at)
			VALUES ('default', 'resting', 1, 'pending', 1, 1, 1, '', stoa_now() + 3600000000, FALSE, 'no', stoa_now())`)
		if err == nil {
			_, err = tx.Exec(t.Context(), `INSERT INTO export (name, since, holder, until, batch, pending, rows, refused, error, updated_at) VALUES ('file', 0, '', 0, 1, FALSE, 0, 0, '', 0) ON CONFLICT (name) DO NOTHING`)
		}
		if err == nil {
			_, err = tx.Exec(t.Context(), `INSERT INTO budget_balance (tenant, budget, since, committed, reserved) SELECT tenant, id, 0, 1, 0 FROM budget WHERE name = 'cap'
				ON CONFLICT (tenant, budget, since) DO UPDATE SET committed = 1`)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	m := h.Metrics()
	m.RecordRequest(surface.Observation{App: "acme", Agent: "a", Route: "/agents/{agent}", Status: 429, Code: apierror.ResourceExhausted})
	m.RecordRefusal("acme", "user-count-minute")
	m.RecordModelCall(t.Context(), "acme", runtime.ModelCall{Provider: "openai", Model: "m", Duration: time.Second, TimeToFirstChunk: time.Second, ErrorKind: "500", Usage: agentsvc.Usage{InputTokens: 3, CacheReadTokens: 1}})
	m.RecordToolCall(t.Context(), "acme", runtime.ToolCall{Tool: "x", Duration: time.Second, ErrorKind: "timeout"})
	m.RecordRunEnd(t.Context(), "acme", store.Run{}, "", time.Second)
	m.RecordFinding(t.Context(), "acme", guardrail.Finding{Guardrail: "house", Action: guardrail.Block})
	m.RecordCharge(t.Context(), "acme", "m", "EUR", 1_500_000_000)
	m.RecordNotification("acme", "delivered")
	m.RecordSweep(store.SweepCounts{Tasks: 1})
	m.RecordReload(errors.New("no"))
	m.RecordAppLoad(time.Second, errors.New("no"))
	m.RecordTick("acme", errors.New("no"))
	m.Documents.RecordDocument("acme", indexing.OutcomeIndexed, 3)
	m.Documents.RecordStep("embed", time.Second)
	m.Documents.RecordPass("acme", indexing.PassCompleted, time.Second)
	m.Documents.RecordSearch("acme", retrieval.Degraded, time.Second)
	m.Documents.RecordSearchPart(retrieval.PartWords, time.Second)
	m.RecordDelivery("acme", "unsigned")
	m.RecordAppEviction()
	m.RecordRequest(surface.Observation{Route: "/tasks/{id}", Status: 200, Duration: time.Minute, Stream: true})
	m.RecordExport("file", nil)
	m.NewRedisObserver("limits")(t.Context(), time.Millisecond, errors.New("no"))
	return h
}

// listShownMetrics returns the metrics that Prometheus is shown by a server.
func (ts *testServer) listShownMetrics(t *testing.T) map[string]metrics.Info {
	t.Helper()
	shown, err := ts.Metrics().Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]metrics.Info{}
	for _, f := range shown {
		if strings.HasPrefix(f.GetName(), "go_") || strings.HasPrefix(f.GetName(), "process_") {
			continue
		}
		labels := map[string]bool{}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				labels[l.GetName()] = true
			}
		}
		got[f.GetName()] = metrics.Info{Name: f.GetName(), Kind: strings.ToLower(f.GetType().String()), Help: f.GetHelp(), Labels: slices.Sorted(maps.Keys(labels))}
	}
	return got
}

// openServerTLS starts a server whose listener has a certificate.
func openServerTLS(t *testing.T) *testServer {
	t.Helper()
	dir := t.TempDir()
	writeCertificate(t, dir)
	file := filepath.Join(dir, "stoa.yaml")
	text := strings.NewReplacer("cert.pem", filepath.Join(dir, "cert.pem"), "key.pem", filepath.Join(dir, "key.pem")).Replace(encryptedApp) + "observability: {metrics: {enabled: true}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return openServerWith(t, dbtest.NewSQLiteURL(t), newTestLog(t), file)
}

// TestMetricsPage compares docs/metrics.md with what Prometheus is shown: names, kinds, labels, help texts.
func TestMetricsPage(t *testing.T) {
	const file = "../../docs/metrics.md"
	h := openExercisedServer(t)
	got := h.listShownMetrics(t)
	secure := openServerTLS(t)
	// What a process without TLS, or on PostgreSQL, does not show.
	for _, name := range []string{"stoa_tls_certificate_not_after_seconds", "stoa_db_disk_free_bytes"} {
		dbtest.WaitUntil(t, name+" is shown", func() (found bool) {
			got[name], found = secure.listShownMetrics(t)[name]
			return found
		})
	}
	want, described := map[string]metrics.Info{}, map[string]metrics.Info{}
	for _, f := range slices.Concat(h.Metrics().List(), secure.Metrics().List()) {
		described[f.Name] = f // with its labels in the order of the definition
		f.Labels = slices.Sorted(slices.Values(f.Labels))
		want[f.Name] = f
	}
	if d := diff.Diff(want, got); d != "" {
		t.Errorf("what is shown is not what is described (-described +shown):\n%s", d)
	}
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	reported, _, _ := strings.Cut(string(src), metricsHeading)
	var page strings.Builder
	page.WriteString(reported + metricsHeading + "\nWritten by `go generate ./cmd/stoa` from the code. There are also those of the Go runtime (`go_*`) and of the\nprocess (`process_*`).\n\n| Metric | Kind | Labels | Meaning |\n|---|---|---|---|\n")
	for _, f := range slices.SortedFunc(maps.Values(described), func(a, b metrics.Info) int { return cmp.Compare(a.Name, b.Name) }) {
		labels := "-"
		if len(f.Labels) > 0 {
			labels = "`" + strings.Join(f.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", f.Name, f.Kind, labels, f.Help)
	}
	if *updatePage {
		if err := os.WriteFile(file, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if d := diff.Diff(page.String(), string(src)); d != "" {
		t.Errorf("the table of every metric is stale; run go generate ./cmd/stoa (-want +got):\n%s", d)
	}
}
