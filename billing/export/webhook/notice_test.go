package webhook_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"stoa/agentsvc/agentsvctest"

	"github.com/google/go-cmp/cmp"

	"stoa/billing/budget"
	"stoa/billing/budget/budgettest"
	"stoa/billing/export"
	"stoa/billing/export/exporttest"
	"stoa/billing/export/webhook"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestNotices checks that the webhook gets each notice until it has accepted it, with the same id, and not again after
// that, from any process.
func TestNotices(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		var received []string
		ids := map[string]bool{}
		status := http.StatusOK
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var m struct {
				Type string
				Data struct {
					App, Budget, Unit            string
					Threshold, Committed, Amount int64
				}
			}
			body, _ := io.ReadAll(r.Body)
			if err := json.Unmarshal(body, &m); err != nil {
				t.Error(err)
			}
			received = append(received, fmt.Sprintf("%s %q %s %d of %d %s: %d", m.Type, m.Data.App, m.Data.Budget, m.Data.Committed, m.Data.Amount, m.Data.Unit, m.Data.Threshold))
			ids[r.Header.Get("Webhook-Id")] = true
			w.WriteHeader(status)
		}))
		defer server.Close()
		secret, err := webhook.ParseSecret("whsec_" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef01234567")))
		agentsvctest.RequireNoErrors(t, err)
		sinks := map[string]export.Sink{"webhook": webhook.Sink{URL: server.URL, Secret: secret, Client: server.Client()}}
		s := budgettest.Open(t, d)
		one, other := exporttest.NewExporter(d, s, sinks), exporttest.NewExporter(d, budgettest.Open(t, d), sinks)
		agentsvctest.RequireNoErrors(t, one.DeliverAll(t.Context())) // the export begins
		budgettest.AddBudget(t, s.Budgets, tenancy.App{}, budgettest.CallBudget(10))
		b := budgettest.CallBudget(10)
		b.Thresholds = []int{5}
		budgettest.AddBudget(t, s.Budgets, budgettest.Acme, b)
		x := budgettest.NewRequest()
		r, err := s.Budgets.NewGate(budgettest.Acme.ID, "").ReserveBudget(t.Context(), x)
		agentsvctest.RequireNoErrors(t, err)
		agentsvctest.RequireNoErrors(t, r.SettleReservation(t.Context(), s.Usage.NewMeter(budgettest.Acme.ID, ""), budgettest.UsageOf(r, x, 1, 1)))

		status = http.StatusBadGateway
		if err := one.DeliverAll(t.Context()); err == nil {
			t.Error("a notice that was not taken is no error")
		}
		status = http.StatusNoContent
		agentsvctest.RequireNoErrors(t, one.DeliverAll(t.Context()))
		var free db.Batch
		free.Exec(nil, `UPDATE export SET until = 0`)
		agentsvctest.RequireNoErrors(t, d.Platform().Do(t.Context(), &free))
		agentsvctest.RequireNoErrors(t, other.DeliverAll(t.Context()))
		notice := `budget.threshold_passed "acme-id" calls 1 of 10 calls: 5`
		if diff := cmp.Diff([]string{notice, notice}, received); diff != "" {
			t.Errorf("heard (-want +got):\n%s", diff)
		}
		if len(ids) != 1 {
			t.Errorf("ids %v, want one", ids)
		}

		b.Amount, b.Thresholds = 1, []int{5, 100}
		if _, err := s.Budgets.UpdateBudget(t.Context(), audit.Actor{Name: "operator"}, budgettest.Acme, b.Name, func(budget.Budget) (budget.Budget, error) { return b, nil }); err != nil {
			t.Fatal(err)
		}
		agentsvctest.RequireNoErrors(t, other.DeliverAll(t.Context()))
		if want := `budget.threshold_passed "acme-id" calls 1 of 1 calls: 100`; len(received) != 3 || received[2] != want {
			t.Errorf("heard %q, want one more: %s", received, want)
		}
	})
}
