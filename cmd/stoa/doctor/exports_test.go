package doctor

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"stoa/cmd/stoa/server"
)

// TestTelemetry sends empty exports to collectors. It is not parallel: it changes the environment.
func TestTelemetry(t *testing.T) {
	const header = "Bearer " + password
	received := map[string]string{} // the size and the credential by path
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != header:
			http.Error(w, password, http.StatusUnauthorized)
		case r.URL.Path == "/v1/logs":
			http.Error(w, password, http.StatusServiceUnavailable)
		default:
			received[r.URL.Path] = r.Header.Get("Content-Length")
		}
	}))
	t.Cleanup(collector.Close)
	i := newTestInspector(t, server.Flags{}, nil)
	wantCheck(t, i.checkTelemetry(t.Context()), "telemetry", Skipped, "no OTEL_ variable")

	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	wantCheck(t, i.checkTelemetry(t.Context()), "telemetry_traces", Failure, collector.URL+"/v1/traces: it answers 401")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20"+password)
	t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
	t.Setenv("OTEL_LOGS_EXPORTER", "otlp")
	checks := i.checkTelemetry(t.Context())
	wantCheck(t, checks, "telemetry_traces", OK, collector.URL+"/v1/traces takes exports")
	wantCheck(t, checks, "telemetry_metrics", OK, collector.URL+"/v1/metrics takes exports")
	wantCheck(t, checks, "telemetry_logs", Failure, "it answers that it is busy")
	if len(received) != 2 || received["/v1/traces"] != "" && received["/v1/traces"] != "0" {
		t.Errorf("the collector got %v", received)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://user:"+password+"@127.0.0.1:1/v1/traces?key="+password)
	wantCheck(t, i.checkTelemetry(t.Context()), "telemetry_traces", Failure, "http://127.0.0.1:1/v1/traces: the connection was refused")
	t.Setenv("OTEL_TRACES_EXPORTER", "zipkin")
	wantCheck(t, i.checkTelemetry(t.Context()), "telemetry", Failure, "OTEL_TRACES_EXPORTER must be otlp or none")
}

// TestUsageExport reaches the targets of the export of usage. It is not parallel: it changes the environment.
func TestUsageExport(t *testing.T) {
	i := newTestInspector(t, server.Flags{}, nil)
	wantCheck(t, i.checkUsageExport(t.Context()), "usage_export", Skipped, "no STOA_EXPORT_ variable")

	folder := t.TempDir()
	t.Setenv("STOA_EXPORT_FOLDER", folder)
	wantCheck(t, i.checkUsageExport(t.Context()), "usage_export_file", OK, folder+" can be reached")
	t.Setenv("STOA_EXPORT_FOLDER", filepath.Join(folder, "gone"))
	wantCheck(t, i.checkUsageExport(t.Context()), "usage_export", Failure, "is no folder")
	t.Setenv("STOA_EXPORT_FOLDER", "")

	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") }))
	t.Cleanup(receiver.Close)
	t.Setenv("STOA_EXPORT_WEBHOOK", receiver.URL+"/"+password)
	t.Setenv("STOA_EXPORT_WEBHOOK_SECRET", "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
	wantCheck(t, i.checkUsageExport(t.Context()), "usage_export", Failure, "must be an https address")
	t.Setenv("STOA_EXPORT_PRIVATE_NETWORK", "true")
	wantCheck(t, i.checkUsageExport(t.Context()), "usage_export_webhook", OK, "can be reached")
	t.Setenv("STOA_EXPORT_WEBHOOK", "http://127.0.0.1:1/"+password)
	wantCheck(t, i.checkUsageExport(t.Context()), "usage_export_webhook", Failure, "127.0.0.1:1: the connection was refused")

	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes
	secure.StartTLS()
	t.Cleanup(secure.Close)
	t.Setenv("STOA_EXPORT_WEBHOOK", secure.URL)
	wantCheck(t, i.checkUsageExport(t.Context()), "usage_export_webhook", Failure, "signed by no authority")
	t.Setenv("STOA_EXPORT_PRIVATE_NETWORK", "false")
	wantCheck(t, i.checkUsageExport(t.Context()), "usage_export_webhook", Failure, "is not allowed: only public addresses")
}
