package budget_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/billing/budget/budgettest"
	"stoa/billing/price"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestAuditTrail checks that a change of a plan or a budget records its state before and after in the audit trail.
func TestAuditTrail(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := budgettest.Open(t, d)
		p := price.Plan{Name: "small", Currency: "USD", BaseFee: 20_500_000_000, QueueDepth: 5, AllowedModels: []string{"openai/*"}}
		if _, err := s.Prices.AddPlan(t.Context(), actor, p); err != nil {
			t.Fatal(err)
		}
		p.QueueDepth, p.AllowedModels = 7, nil
		if _, err := s.Prices.UpdatePlan(t.Context(), actor, p); err != nil {
			t.Fatal(err)
		}
		b := budgettest.CallBudget(5)
		budgettest.AddBudget(t, s.Budgets, budgettest.Acme, b)
		b.Amount, b.Hard = 9, false
		if _, err := s.Budgets.UpdateBudget(t.Context(), actor, budgettest.Acme, b.Name, replaceWith(b)); err != nil {
			t.Fatal(err)
		}
		if err := s.Budgets.DeleteBudget(t.Context(), actor, budgettest.Acme, b.Name); err != nil {
			t.Fatal(err)
		}
		type side struct {
			Depth  int      `json:"queue_depth"`
			Models []string `json:"allowed_models"`
			Amount int      `json:"amount"`
			Hard   bool     `json:"hard"`
			Fee    string   `json:"base_fee_decimal,omitempty"`
		}
		var got []string
		var q db.Batch
		q.Query(func(row db.Row) error {
			var action, detail string
			var change struct{ Before, After *side }
			if err := row.Scan(&action, &detail); err != nil {
				return err
			}
			if err := json.Unmarshal([]byte(detail), &change); err != nil {
				return err
			}
			short, err := json.Marshal([]any{change.Before, change.After})
			got = append(got, action+" "+string(short))
			return err
		}, `SELECT action, detail FROM audit ORDER BY at, id`)
		if err := d.Platform().Do(t.Context(), &q); err != nil {
			t.Fatal(err)
		}
		want := []string{
			`plan.create [null,{"queue_depth":5,"allowed_models":["openai/*"],"amount":0,"hard":false,"base_fee_decimal":"20.50"}]`,
			`plan.update [{"queue_depth":5,"allowed_models":["openai/*"],"amount":0,"hard":false,"base_fee_decimal":"20.50"},{"queue_depth":7,"allowed_models":null,"amount":0,"hard":false,"base_fee_decimal":"20.50"}]`,
			`budget.create [null,{"queue_depth":0,"allowed_models":null,"amount":5,"hard":true}]`,
			`budget.update [{"queue_depth":0,"allowed_models":null,"amount":5,"hard":true},{"queue_depth":0,"allowed_models":null,"amount":9,"hard":false}]`,
			`budget.delete [{"queue_depth":0,"allowed_models":null,"amount":9,"hard":false},null]`,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the trail (-want +got):\n%s", diff)
		}
	})
}
