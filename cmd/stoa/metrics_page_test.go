package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/app"
	"stoa/agentsvc/guardrail"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

var updatePage = flag.Bool("update", false, "write the table of docs/metrics.md")

const metricsHeading = "## Every metric\n"

// openExercisedServer starts a server on PostgreSQL and exercises it until every metric has a value.
func openExercisedServer(t *testing.T) *testServer {
	t.Helper()
	h := openTestServer(t, dbtest.NewPostgresURL(t))
	h.requireStatus(t, 200, nil, "POST", "/agents/assistant", "", newRPCCall("message:send", newTextMessage("hello")))
	// A run that waits for its next attempt.
	if err := h.db.Platform().RunTx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO run (tenant, task, turn, state, attempts, revision, first_seq, worker, available_at, ready, last_error, created_at)
			VALUES ('default', 'resting', 1, 'pending', 1, 1, 1, '', stoa_now() + 3600000000, FALSE, 'no', stoa_now())`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	m := h.metrics
	m.recordRequest(surface.Observation{App: "acme", Agent: "a", Route: "/agents/{agent}", Status: 429, Code: surface.ResourceExhausted})
	m.recordRefusal("acme", "user-count-minute")
	m.recordModelCall(t.Context(), "acme", app.ModelCall{Provider: "openai", Model: "m", Duration: time.Second, TimeToFirstChunk: time.Second, ErrorKind: "500", Usage: agentsvc.Usage{InputTokens: 3}})
	m.recordToolCall(t.Context(), "acme", app.ToolCall{Tool: "x", Duration: time.Second, ErrorKind: "timeout"})
	m.recordRunEnd(t.Context(), "acme", store.Run{}, "", time.Second)
	m.recordFinding(t.Context(), "acme", guardrail.Finding{Guardrail: "house", Action: guardrail.Block})
	m.recordCharge(t.Context(), "acme", "m", "EUR", 1_500_000_000)
	m.recordNotification("acme", "delivered")
	m.recordSweep(store.SweepCounts{Tasks: 1})
	m.recordAppLoad(time.Second, errors.New("no"))
	m.recordTick("acme", errors.New("no"))
	m.recordDelivery("acme", "unsigned")
	m.appEvictions.Add(t.Context(), 1)
	return h
}

// TestMetricsPage compares docs/metrics.md with what Prometheus is shown: names, kinds, labels, help texts.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	const file = "../../docs/metrics.md"
	h := openExercisedServer(t)
	shown, err := h.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]metricInfo{}
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
		got[f.GetName()] = metricInfo{f.GetName(), strings.ToLower(f.GetType().String()), f.GetHelp(), slices.Sorted(maps.Keys(labels))}
	}
	want := map[string]metricInfo{}
	for _, f := range h.metrics.infos {
		f.labels = slices.Sorted(slices.Values(f.labels))
		want[f.name] = f
	}
	if d := diff.Diff(want, got, diff.AllowUnexported(metricInfo{})); d != "" {
		t.Errorf("what is shown is not what is described (-described +shown):\n%s", d)
	}
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	reported, _, _ := strings.Cut(string(src), metricsHeading)
	var page strings.Builder
	page.WriteString(reported + metricsHeading + "\nWritten by `go generate ./cmd/stoa` from the code. There are also those of the Go runtime (`go_*`) and of the\nprocess (`process_*`).\n\n| Metric | Kind | Labels | Meaning |\n|---|---|---|---|\n")
	for _, f := range slices.SortedFunc(slices.Values(h.metrics.infos), func(a, b metricInfo) int { return cmp.Compare(a.name, b.name) }) {
		labels := "-"
		if len(f.labels) > 0 {
			labels = "`" + strings.Join(f.labels, "`, `") + "`"
		}
		fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", f.name, f.kind, labels, f.help)
	}
	if *updatePage {
		if err := os.WriteFile(file, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if d := diff.Diff(page.String(), string(src)); d != "" {
		t.Errorf("the table of every metric is stale; run go generate ./cmd/stoa (-want +got):\n%s", d)
	}
}
