package faults_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestBudgetKill kills a worker between the reservation of a model call and its settlement. Within a minute its
// reservation is released, and the call that the task makes instead is counted once.
func TestBudgetKill(t *testing.T) {
	t.Parallel()
	if !isFull {
		reportSkipped(t, "a reservation of a dead process takes most of a minute to lapse; make faults does it")
		return
	}
	forEachEngine(t, func(t *testing.T, c *cluster) {
		type budget struct{ Committed, Reserved int64 }
		loadBudget := func(n *node) (b budget) {
			var list struct{ Budgets []budget }
			c.requireNoError(n.adminClient().requestJSON(t.Context(), http.MethodGet, "/admin/apps/acme/budgets", nil, &list))
			return list.Budgets[0]
		}
		made := map[string]any{"name": "cap", "unit": "calls", "amount": 3, "window": "total", "hard": true}
		c.requireNoError(c.nodes[0].adminClient().requestJSON(t.Context(), http.MethodPost, "/admin/apps/acme/budgets", made, nil))
		blocked := c.model.barriers.blockRequests("hello")
		id := c.startTaskAt(c.nodes[0], message{agent: "modelled", text: "hello", id: "m1"})
		blocked.waitForRequest(t)
		if b := loadBudget(c.nodes[0]); b != (budget{0, 1}) {
			t.Fatalf("during the call the budget stands at %+v", b)
		}
		c.nodes[0].killProcess()
		killed := time.Now()
		blocked.releaseRequests()
		n := c.survivingNode()
		c.waitForState(n, "modelled", id, "completed", rescueTimeout)
		c.waitWithin(time.Minute-time.Since(killed), "what was reserved is free, and the call was counted once", func() bool {
			return loadBudget(n) == budget{1, 0}
		})
	})
}

// TestBudgetFleet lets 200 callers at three processes share a budget: together they get exactly its amount, and the
// rest is refused.
func TestBudgetFleet(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 3, args: longStaleArgs})
	c.createBudget("acme")
	c.spendBudget("acme", 0, 200)
}

// TestF7Budget stops Redis while apps have spent a part of their budgets: exactly the rest can still be spent.
func TestF7Budget(t *testing.T) {
	t.Parallel()
	states := []struct {
		name  string
		state linkState
	}{{"refused", linkRefused}, {"half-open", linkHalfOpen}, {"black-hole", linkBlackHole}}
	if !isFull {
		reportSkipped(t, "Redis that swallows; make faults does it")
		states = states[:1]
	}
	c := startCluster(t, clusterOptions{nodes: 2, redis: true, args: longStaleArgs})
	for _, x := range states {
		c.createApp(x.name, c.appConfig())
		rate := map[string]any{"per": "app", "type": "count", "window": "month", "limit": 1 << 30}
		c.requireNoError(c.nodes[0].adminClient().requestJSON(t.Context(), http.MethodPatch, "/admin/apps/"+x.name, map[string]any{"limits": map[string]any{"rate": []any{rate}}}, nil))
		c.createBudget(x.name)
		spent := c.spendBudget(x.name, 0, budgetCalls/3)
		for _, n := range c.nodes {
			n.redisProxy.setState(x.state)
			if x.state.refuses {
				n.redisProxy.cutConnections()
			}
		}
		c.spendBudget(x.name, spent, 3*budgetCalls)
		for _, n := range c.nodes {
			n.redisProxy.setState(linkUp)
			n.redisProxy.cutConnections()
		}
	}
}

// longStaleArgs keeps other processes from taking the runs of one that is merely slow on a busy machine: the second
// attempt of a run would pay for its model calls again, and ask a human about a tool call whose effect it does not know.
var longStaleArgs = []string{"--queue-stale-threshold", "1m"}

// budgetCalls is the number of calls in the budget of [cluster.createBudget].
const budgetCalls = 23

// createBudget gives an app a budget and waits until every process has loaded it.
func (c *cluster) createBudget(app string) {
	c.Helper()
	made := map[string]any{"name": "cap", "unit": "calls", "amount": budgetCalls, "window": "total", "hard": true}
	c.requireNoError(c.nodes[0].adminClient().requestJSON(c.Context(), http.MethodPost, "/admin/apps/"+app+"/budgets", made, nil))
	sleepContext(c.Context(), 2500*time.Millisecond)
}

// spendBudget lets callers at all processes share the rest of an app's budget and checks that they get exactly that,
// as far as they are enough. It returns how many calls of the budget are spent afterwards.
func (c *cluster) spendBudget(app string, spent, callers int) int {
	c.Helper()
	token := c.createToken(app, "ana")
	want := min(budgetCalls, spent+callers)
	var completed, refused atomic.Int64
	runConcurrently(callers, func(i int) {
		caller := &client{baseURL: c.nodes[i%len(c.nodes)].baseURL, token: token, http: c.client}
		got, err := caller.sendMessage(c.Context(), message{text: "hello", id: fmt.Sprintf("m%d-%d", spent, i)})
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
	c.requireNoError(c.nodes[1].adminClient().requestJSON(c.Context(), http.MethodGet, "/admin/apps/"+app+"/budgets", nil, &list))
	b := list.Budgets[0]
	if int(completed.Load()) != want-spent || b.Committed != want || b.Reserved != 0 || b.Remaining != budgetCalls-want {
		c.Errorf("%s: %d calls of %d were answered and %d refused; the budget stands at %+v", app, completed.Load(), want-spent, refused.Load(), b)
	}
	reportf(c.T, "%s: %d callers at %d processes: %d answered, %d refused", app, callers, len(c.nodes), completed.Load(), refused.Load())
	return want
}
