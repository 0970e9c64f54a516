package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkCall measures a blocking call through the whole server with the in-memory database: without metrics and
// traces, with metrics, and with one in a hundred or all calls traced.
func BenchmarkCall(b *testing.B) {
	for _, bb := range []struct{ name, config, ratio string }{
		{"plain", "", ""},
		{"metrics", "observability: {metrics: {enabled: true}}\n", ""},
		{"traced 1%", "", "0.01"},
		{"traced", "", "1"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			config := filepath.Join(b.TempDir(), "stoa.yaml")
			if err := os.WriteFile(config, []byte("llms: {m: {provider: scripted}}\nagents: {assistant: {llm: m}}\n"+bb.config), 0o600); err != nil {
				b.Fatal(err)
			}
			if bb.ratio != "" {
				sink := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				defer sink.Close()
				b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.URL)
				b.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
				b.Setenv("OTEL_TRACES_SAMPLER_ARG", bb.ratio)
			}
			h := openServerWith(b, "sqlite://:memory:", slog.New(slog.DiscardHandler), config)
			body := newRPCCall("message:send", newTextMessage("hello"))
			b.ReportAllocs()
			for b.Loop() {
				h.requireStatus(b, http.StatusOK, nil, "POST", "/agents/assistant", "", body)
			}
		})
	}
}
