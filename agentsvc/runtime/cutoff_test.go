package runtime_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"stoa/agentsvc/config"
	"stoa/agentsvc/runtime"
	"stoa/billing"
	"stoa/billing/budget"
	"stoa/billing/calendar"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db/dbtest"
)

// TestCutOffAnswer checks that the estimated usage of an interrupted response does not exceed its reservation, for any
// text.
func TestCutOffAnswer(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	bills, err := billing.Open(t.Context(), d, nil, billing.Options{})
	if err != nil {
		t.Fatal(err)
	}
	acme := tenancy.App{ID: "acme", Name: "acme"}
	if _, err := bills.Budgets.AddBudget(t.Context(), audit.Actor{Name: "admin"}, acme, budget.Budget{Name: "cap", Unit: budget.InTokens, Amount: 300, Window: calendar.Total, Hard: true}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, openAIDelta(`{"content":"`+strings.Repeat("ß", 4000)+`"}`, "null"))
	}))
	t.Cleanup(server.Close)
	cfg := mustParse(t, `
llms: {m: {provider: openai, api_key: k, model: gpt-4o, max_tokens: 100, base_url: "`+server.URL+`"}}
agents: {helper: {llm: m}}
`, config.Options{})
	a := newAppWith(t, d, cfg, runtime.Tenant{ID: acme.ID, Name: acme.Name, Revision: 1, PrivateNetwork: true}, slog.New(slog.DiscardHandler), func(h *runtime.Dependencies) { h.Billing = bills })
	runTurn(t, a, newSubmission("hi"))
	b, err := bills.Budgets.FindBudget(t.Context(), acme.ID, "cap")
	if err != nil {
		t.Fatal(err)
	}
	if b.Committed < 100 || b.Committed > 300 || b.Reserved != 0 {
		t.Errorf("the budget stands at %d and %d", b.Committed, b.Reserved)
	}
}
