package faults_test

import (
	"net/http"
	"testing"
	"time"
)

// TestBudgetKill kills a worker between the reservation of a model call and its settlement. Within a minute what it had reserved
// is free, the call that its task makes instead is counted, and counted once.
func TestBudgetKill(t *testing.T) {
	t.Parallel()
	if !full {
		t.Skip("a reservation of a dead process takes most of a minute to lapse: make faults")
	}
	engines(t, func(t *testing.T, c *cluster) {
		type budget struct{ Committed, Reserved int64 }
		look := func(n *node) (b budget) {
			var list struct{ Budgets []budget }
			c.must(n.admin().ask(t.Context(), http.MethodGet, "/admin/apps/acme/budgets", nil, &list))
			return list.Budgets[0]
		}
		made := map[string]any{"name": "cap", "unit": "calls", "amount": 3, "window": "total", "hard": true}
		c.must(c.nodes[0].admin().ask(t.Context(), http.MethodPost, "/admin/apps/acme/budgets", made, nil))
		held := c.model.gates.close("hello")
		id := c.live(c.nodes[0], message{agent: "modelled", text: "hello", id: "m1"})
		held.await(t)
		if b := look(c.nodes[0]); b != (budget{0, 1}) {
			t.Fatalf("during the call the budget stands at %+v", b)
		}
		c.nodes[0].kill()
		killed := time.Now()
		held.release()
		n := c.survivor()
		c.restsAs(n, "modelled", id, "completed", rescue)
		c.within(time.Minute-time.Since(killed), "what was reserved is free, and the call was counted once", func() bool {
			return look(n) == budget{1, 0}
		})
	})
}
