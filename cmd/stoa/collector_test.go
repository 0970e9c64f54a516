package main

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	logspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracespb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"stoa/tenancy/db/dbtest"
)

// collector receives what processes export over OTLP.
type collector struct {
	url string

	mu      sync.Mutex
	raw     []byte // every received body
	service map[string]string
	spans   []*tracepb.Span
	metrics []string // names of the received metrics
	logs    []map[string]string
}

// newCollector starts a collector and points the OTEL_* variables of the test's servers to it.
func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	c.url = s.URL
	for name, value := range map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": s.URL, "OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_BLRP_SCHEDULE_DELAY": "50",
		"OTEL_METRIC_EXPORT_INTERVAL": "100"} {
		t.Setenv(name, value)
	}
	return c
}

// ServeHTTP receives one export.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw = append(c.raw, body...)
	switch r.URL.Path {
	case "/v1/traces":
		var in tracespb.ExportTraceServiceRequest
		err = proto.Unmarshal(body, &in)
		for _, res := range in.ResourceSpans {
			c.service = attributeTexts(res.Resource.Attributes)
			for _, scope := range res.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	case "/v1/metrics":
		var in metricspb.ExportMetricsServiceRequest
		err = proto.Unmarshal(body, &in)
		for _, res := range in.ResourceMetrics {
			for _, scope := range res.ScopeMetrics {
				for _, m := range scope.Metrics {
					c.metrics = append(c.metrics, m.Name)
				}
			}
		}
	case "/v1/logs":
		var in logspb.ExportLogsServiceRequest
		err = proto.Unmarshal(body, &in)
		for _, res := range in.ResourceLogs {
			for _, scope := range res.ScopeLogs {
				for _, r := range scope.LogRecords {
					line := attributeTexts(r.Attributes)
					line["msg"], line["trace"] = r.Body.GetStringValue(), hex.EncodeToString(r.TraceId)
					c.logs = append(c.logs, line)
				}
			}
		}
	default:
		w.WriteHeader(http.StatusNotFound)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
	}
}

func attributeTexts(attrs []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range attrs {
		out[a.Key] = a.Value.GetStringValue()
	}
	return out
}

// awaitSpans waits until the trace has at least one span of each name and returns its spans.
func (c *collector) awaitSpans(t *testing.T, trace string, names ...string) []*tracepb.Span {
	t.Helper()
	var found []*tracepb.Span
	dbtest.WaitUntil(t, "the spans of a trace", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		found = slices.DeleteFunc(slices.Clone(c.spans), func(s *tracepb.Span) bool { return hex.EncodeToString(s.TraceId) != trace })
		for _, n := range names {
			if findSpan(found, n) == nil {
				return false
			}
		}
		return true
	})
	return found
}

// findSpan returns the first span with a name, nil if there is none.
func findSpan(spans []*tracepb.Span, name string) *tracepb.Span {
	for _, s := range spans {
		if s.Name == name {
			return s
		}
	}
	return nil
}

func (c *collector) exportedText() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.raw)
}
