package metrics

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
)

// TestZeroSeries checks that counters of closed sets are shown before their first event, and that the first event of an
// app creates its other series without changing what was counted.
func TestZeroSeries(t *testing.T) {
	t.Parallel()
	m, err := NewRecorder(true)
	if err != nil {
		t.Fatal(err)
	}
	requireSeries := func(lines ...string) {
		t.Helper()
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		for _, line := range lines {
			if !strings.Contains(w.Body.String(), line+"\n") {
				t.Errorf("the metrics lack %s", line)
			}
		}
	}
	requireSeries(
		`stoa_request_errors_total{code="INTERNAL"} 0`, `stoa_limit_refusals_total{rule="budget"} 0`, `stoa_runs_total{state="failed"} 0`,
		`stoa_runs_total{state="dead"} 0`, `stoa_schedule_ticks_total{outcome="failed"} 0`, `stoa_webhook_deliveries_total{outcome="unsigned"} 0`,
		`stoa_notifications_total{outcome="dead"} 0`, `stoa_retention_deleted_total{kind="tasks"} 0`, `stoa_app_loads_total{outcome="failed"} 0`, `stoa_app_evictions_total 0`,
	)
	m.RecordRunState(t.Context(), "acme", "completed")
	m.RecordDelivery("acme", "failed")
	m.RecordRunState(t.Context(), "acme", "completed")
	m.RecordRefusal("acme", "user-count-minute") // no closed set: its label set is new
	requireSeries(`stoa_runs_total{app="acme",state="completed"} 2`, `stoa_runs_total{app="acme",state="failed"} 0`,
		`stoa_webhook_deliveries_total{app="acme",outcome="failed"} 1`, `stoa_request_errors_total{app="acme",code="INTERNAL"} 0`)
}

// TestStreamsApart checks that the duration of a stream is not one of a request.
func TestStreamsApart(t *testing.T) {
	t.Parallel()
	m, err := NewRecorder(true)
	if err != nil {
		t.Fatal(err)
	}
	m.RecordRequest(surface.Observation{Route: "/a", Status: 200, Duration: time.Second})
	m.RecordRequest(surface.Observation{Route: "/a", Status: 200, Duration: time.Hour, Stream: true})
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{`service_request_duration_seconds_sum{route="/a",status="2xx"} 1`, `stoa_stream_duration_seconds_sum{route="/a",status="2xx"} 3600`} {
		if !strings.Contains(w.Body.String(), line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
}

// TestProbesAreNoErrors checks that the 503 that a stopping process answers to probes is not counted among the errors that
// clients get.
func TestProbesAreNoErrors(t *testing.T) {
	t.Parallel()
	m, err := NewRecorder(false)
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range []string{"/ready", "/health", "/tasks"} {
		m.RecordRequest(surface.Observation{Route: route, Status: 503, Code: apierror.Unavailable})
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if line := `stoa_request_errors_total{code="UNAVAILABLE"} 1`; !strings.Contains(w.Body.String(), line+"\n") {
		t.Errorf("the metrics lack %s", line)
	}
}

// TestObserverAllocations checks that what calls wait for allocates nothing.
func TestObserverAllocations(t *testing.T) {
	m, err := NewRecorder(true)
	if err != nil {
		t.Fatal(err)
	}
	observe := m.NewRedisObserver("limits")
	if n := testing.AllocsPerRun(100, func() { observe(t.Context(), time.Millisecond, nil) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
