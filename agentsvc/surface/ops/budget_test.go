package ops_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"stoa/agentsvc/surface/surfacetest"
	"stoa/tenancy/db"
)

// TestBudgetTogether checks that concurrent changes of one budget do not overwrite each other, and that the audit
// entry of each has the terms it replaced.
func TestBudgetTogether(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{}, newRoutes)
	type m = map[string]any
	sendPut := func(want int, method, path string, body m) {
		resp, text := h.Do(t, method, "/admin/budgets"+path, surfacetest.Secret, body)
		if resp.StatusCode != want {
			t.Errorf("%s %v: %d, want %d: %s", method, body, resp.StatusCode, want, text)
		}
	}
	sendPut(201, http.MethodPost, "", m{"name": "cap", "unit": "calls", "amount": 1, "window": "day", "thresholds": []int{1}})
	const rounds = 30
	for i := 2; i <= rounds; i++ {
		var both sync.WaitGroup
		both.Go(func() { sendPut(200, http.MethodPut, "/cap", m{"amount": i}) })
		both.Go(func() { sendPut(200, http.MethodPut, "/cap", m{"thresholds": []int{i}}) })
		both.Wait()
		b, err := h.Billing.Budgets.FindBudget(t.Context(), "", "cap")
		if err != nil {
			t.Fatal(err)
		}
		if b.Amount != int64(i) || !slices.Equal(b.Thresholds, []int{i}) {
			t.Errorf("round %d ends with the amount %d and the thresholds %v", i, b.Amount, b.Thresholds)
		}
	}

	type terms struct {
		Amount     int64
		Thresholds []int
	}
	follows := map[string]string{} // terms before a change, to those after it
	var q db.Batch
	q.Query(func(r db.Row) error {
		var detail string
		if err := r.Scan(&detail); err != nil {
			return err
		}
		var change struct{ Before, After terms }
		err := json.Unmarshal([]byte(detail), &change)
		follows[fmt.Sprint(change.Before)] = fmt.Sprint(change.After)
		return err
	}, `SELECT detail FROM audit WHERE action = 'budget.update'`)
	if err := h.DB.Platform().Do(t.Context(), &q); err != nil {
		t.Fatal(err)
	}
	n, at := 0, fmt.Sprint(terms{1, []int{1}})
	for follows[at] != "" {
		n, at = n+1, follows[at]
	}
	if want := fmt.Sprint(terms{rounds, []int{rounds}}); n != 2*(rounds-1) || at != want {
		t.Errorf("the trail leads over %d changes to %s, want %d to %s", n, at, 2*(rounds-1), want)
	}
}
