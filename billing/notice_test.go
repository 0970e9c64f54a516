package billing_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/billing"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestNotices: the webhook is told of each threshold until it has heard, under the same id, and then no more, whichever
// process tells it.
func TestNotices(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var heard []string
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
			heard = append(heard, fmt.Sprintf("%s %q %s %d of %d %s: %d", m.Type, m.Data.App, m.Data.Budget, m.Data.Committed, m.Data.Amount, m.Data.Unit, m.Data.Threshold))
			ids[r.Header.Get("Webhook-Id")] = true
			w.WriteHeader(status)
		}))
		defer server.Close()
		secret, err := billing.ParseWebhookSecret("whsec_" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef01234567")))
		check(t, err)
		sinks := map[string]billing.Sink{"webhook": billing.WebhookSink{URL: server.URL, Secret: secret, Client: server.Client()}}
		s := open(t, d)
		one, other := s.NewExporter(sinks), open(t, d).NewExporter(sinks)
		check(t, one.Deliver(t.Context())) // it begins
		add(t, s, tenancy.App{}, calls(10))
		b := calls(10)
		b.Thresholds = []int{5}
		add(t, s, acme, b)
		x := ask()
		r, err := s.Allowance(acme.ID, "").Reserve(t.Context(), x)
		check(t, err)
		check(t, r.Settle(t.Context(), s.Meter(acme.ID, ""), used(r, x, 1, 1)))

		status = http.StatusBadGateway
		if err := one.Deliver(t.Context()); err == nil {
			t.Error("a notice that was not taken is no error")
		}
		status = http.StatusNoContent
		check(t, one.Deliver(t.Context()))
		var free db.Batch
		free.Exec(nil, `UPDATE export SET until = 0`)
		check(t, d.Platform().Do(t.Context(), &free))
		check(t, other.Deliver(t.Context()))
		notice := `budget.threshold_passed "acme-id" calls 1 of 10 calls: 5`
		if diff := cmp.Diff([]string{notice, notice}, heard); diff != "" {
			t.Errorf("heard (-want +got):\n%s", diff)
		}
		if len(ids) != 1 {
			t.Errorf("ids %v, want one", ids)
		}

		b.Amount, b.Thresholds = 1, []int{5, 100}
		if _, err := s.PutBudget(t.Context(), actor, acme, b.Name, to(b)); err != nil {
			t.Fatal(err)
		}
		check(t, other.Deliver(t.Context()))
		if want := `budget.threshold_passed "acme-id" calls 1 of 1 calls: 100`; len(heard) != 3 || heard[2] != want {
			t.Errorf("heard %q, want one more: %s", heard, want)
		}
	})
}
