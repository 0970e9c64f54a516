package faults_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestBudgetKill kills a worker between the reservation of a model call and its settlement. Within a minute what it had reserved
// is free, the call that its task makes instead is counted, and counted once.
func TestBudgetKill(t *testing.T) {
	t.Parallel()
	if !full {
		leftOut(t, "a reservation of a dead process takes most of a minute to lapse; make faults does it")
		return
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

// TestBudgetFleet has 200 callers at three processes share a budget: together they get exactly what it holds, and the rest
// is refused.
func TestBudgetFleet(t *testing.T) {
	t.Parallel()
	const amount, callers = 23, 200
	c := up(t, setup{nodes: 3})
	made := map[string]any{"name": "cap", "unit": "calls", "amount": amount, "window": "total", "hard": true}
	c.must(c.nodes[0].admin().ask(t.Context(), http.MethodPost, "/admin/apps/acme/budgets", made, nil))
	wait(t.Context(), 2500*time.Millisecond) // by then every process knows of the budget
	var completed, refused atomic.Int64
	together(callers, func(i int) {
		got, err := c.nodes[i%3].send(t.Context(), message{text: "hello", id: "m" + itoa(i)})
		switch {
		case err == nil && got.Status.State == "completed":
			completed.Add(1)
		case err == nil && got.Status.State == "failed", err != nil && strings.Contains(err.Error(), "RESOURCE_EXHAUSTED"):
			refused.Add(1)
		default:
			t.Errorf("call %d: %s (%v)", i, got.Status.State, err)
		}
	})
	var list struct {
		Budgets []struct{ Committed, Reserved, Remaining int64 }
	}
	c.must(c.nodes[1].admin().ask(t.Context(), http.MethodGet, "/admin/apps/acme/budgets", nil, &list))
	b := list.Budgets[0]
	if completed.Load() != amount || b.Committed != amount || b.Reserved != 0 || b.Remaining != 0 {
		t.Errorf("%d calls of %d were answered and %d refused; the budget stands at %+v", completed.Load(), amount, refused.Load(), b)
	}
	say(t, "%d callers at 3 processes: %d answered, %d refused", callers, completed.Load(), refused.Load())
}
