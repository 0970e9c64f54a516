package metrics

import (
	"fmt"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/trail"
)

// TestMetricsLabelBounds checks that as many apps and models as allowed have labels at the same time, and that a
// model's server cannot create more of them by its responses.
func TestMetricsLabelBounds(t *testing.T) {
	t.Parallel()
	m, err := NewRecorder(true)
	if err != nil {
		t.Fatal(err)
	}
	for i := range topApps {
		for k := range topModels {
			m.RecordModelCall(t.Context(), fmt.Sprint("app", i), runtime.ModelCall{Provider: "openai", Model: fmt.Sprint("model", k), Usage: agentsvc.Usage{InputTokens: 1}})
		}
	}
	for status := range 1000 {
		m.RecordModelCall(t.Context(), "app0", runtime.ModelCall{Provider: "openai", Model: "model0", ErrorKind: trail.ErrorKind(&llm.Error{Status: status})})
	}
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	faults := map[string]bool{}
	sets := map[string]int{}
	for _, f := range families {
		for _, series := range f.Metric {
			sets[f.GetName()]++
			for _, l := range series.Label {
				switch l.GetName() {
				case "otel_metric_overflow":
					t.Fatalf("%s has lost its labels", f.GetName())
				case "error_type":
					faults[l.GetValue()] = true
				}
			}
		}
	}
	if n := sets["stoa_model_tokens_total"]; n != topApps*topModels {
		t.Errorf("%d series of tokens, want one for each app and model", n)
	}
	if len(faults) > 70 || !faults["other_status"] || !faults["404"] || !faults["529"] || !faults["no_answer"] {
		t.Errorf("%d kinds of faults", len(faults))
	}
}
