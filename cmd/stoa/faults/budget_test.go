package faults_test

import (
	"fmt"
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
	c := up(t, setup{nodes: 3, args: unhurried})
	c.fund("acme")
	c.spend("acme", 0, 200)
}

// TestF7Budget takes Redis away from apps that have spent part of their budgets: what is left is spent to the last call, and
// nothing beyond.
func TestF7Budget(t *testing.T) {
	t.Parallel()
	states := []struct {
		name  string
		state wire
	}{{"refused", refused}, {"half-open", halfOpen}, {"black-hole", blackHole}}
	if !full {
		leftOut(t, "Redis that swallows; make faults does it")
		states = states[:1]
	}
	c := up(t, setup{nodes: 2, redis: true, args: unhurried})
	for _, x := range states {
		c.app(x.name, c.config())
		rate := map[string]any{"per": "app", "type": "count", "window": "month", "limit": 1 << 30}
		c.must(c.nodes[0].admin().ask(t.Context(), http.MethodPut, "/admin/apps/"+x.name, map[string]any{"limits": map[string]any{"rate": []any{rate}}}, nil))
		c.fund(x.name)
		spent := c.spend(x.name, 0, budgeted/3)
		for _, n := range c.nodes {
			n.redis.set(x.state)
			if x.state.refuse {
				n.redis.cut()
			}
		}
		c.spend(x.name, spent, 3*budgeted)
		for _, n := range c.nodes {
			n.redis.set(whole)
			n.redis.cut()
		}
	}
}

// unhurried keeps a machine that is too busy from taking a process's runs away: the second attempt of a run pays for its
// model calls a second time.
var unhurried = []string{"--queue-stale-threshold", "1m"}

// budgeted is how many calls the budget of [cluster.fund] holds.
const budgeted = 23

// fund gives an app a budget and waits until every process knows of it.
func (c *cluster) fund(app string) {
	c.Helper()
	made := map[string]any{"name": "cap", "unit": "calls", "amount": budgeted, "window": "total", "hard": true}
	c.must(c.nodes[0].admin().ask(c.Context(), http.MethodPost, "/admin/apps/"+app+"/budgets", made, nil))
	wait(c.Context(), 2500*time.Millisecond)
}

// spend has callers at all processes share what is left of an app's budget, and wants them to get exactly that, as far as they are
// enough. It returns how many calls of the budget are spent by then.
func (c *cluster) spend(app string, spent, callers int) int {
	c.Helper()
	token := c.mint(app, "ana")
	want := min(budgeted, spent+callers)
	var completed, refused atomic.Int64
	together(callers, func(i int) {
		caller := &client{base: c.nodes[i%len(c.nodes)].base, token: token, http: c.client}
		got, err := caller.send(c.Context(), message{text: "hello", id: fmt.Sprintf("m%d-%d", spent, i)})
		switch {
		case err == nil && got.Status.State == "completed":
			completed.Add(1)
		case err == nil && got.Status.State == "failed", err != nil && strings.Contains(err.Error(), "RESOURCE_EXHAUSTED"):
			refused.Add(1)
		default:
			c.Errorf("%s: call %d: %s (%v)", app, i, got.Status.State, err)
		}
	})
	var list struct {
		Budgets []struct{ Committed, Reserved, Remaining int }
	}
	c.must(c.nodes[1].admin().ask(c.Context(), http.MethodGet, "/admin/apps/"+app+"/budgets", nil, &list))
	b := list.Budgets[0]
	if int(completed.Load()) != want-spent || b.Committed != want || b.Reserved != 0 || b.Remaining != budgeted-want {
		c.Errorf("%s: %d calls of %d were answered and %d refused; the budget stands at %+v", app, completed.Load(), want-spent, refused.Load(), b)
	}
	say(c.T, "%s: %d callers at %d processes: %d answered, %d refused", app, callers, len(c.nodes), completed.Load(), refused.Load())
	return want
}
