package metrics

import (
	"net/http/httptest"
	"strings"
	"testing"

	"stoa/agentsvc/guardrail"
)

// TestGuardrailFindings checks that findings are counted by guardrail and action, and by app if apps are labels.
func TestGuardrailFindings(t *testing.T) {
	t.Parallel()
	for _, withApps := range []bool{true, false} {
		m, err := NewRecorder(withApps)
		if err != nil {
			t.Fatal(err)
		}
		m.RecordFinding(t.Context(), "acme", guardrail.Finding{Guardrail: "house", Check: "input.length", Action: guardrail.Block})
		m.RecordFinding(t.Context(), "acme", guardrail.Finding{Guardrail: "house", Check: "output.pii", Action: guardrail.Modify, Shadow: true})
		for range topGuardrails {
			m.RecordFinding(t.Context(), "many", guardrail.Finding{Guardrail: "g" + string(rune('A'+len(m.labels.guardrails.labels))), Action: guardrail.Warn})
		}
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		app := ""
		if withApps {
			app = `app="acme",`
		}
		for _, want := range []string{
			`stoa_guardrail_verdicts_total{action="block",` + app + `guardrail="house",shadow="false"} 1`,
			`stoa_guardrail_verdicts_total{action="modify",` + app + `guardrail="house",shadow="true"} 1`,
			`guardrail="other",shadow="false"} 1`,
		} {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("the metrics lack %s", want)
			}
		}
	}
}
