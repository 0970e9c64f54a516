package faults_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"
)

// TestF7Limits stops Redis while apps have used a part of their limits. The database counts instead: no call waits
// long for that, no call within the limit is refused, and all processes together admit no more than the limit. When
// Redis is back, it continues with its own count.
func TestF7Limits(t *testing.T) {
	t.Parallel()
	const limit, before = 20, 15
	states := []struct {
		name  string
		state linkState
	}{{"half-open", linkHalfOpen}, {"black-hole", linkBlackHole}, {"refused", linkRefused}}
	if !isFull {
		reportSkipped(t, "Redis that swallows or refuses; make faults does it")
		states = states[:1]
	}
	c := startCluster(t, clusterOptions{nodes: 2, redis: true})
	for _, x := range states {
		c.createApp(x.name, c.appConfig())
		rate := map[string]any{"per": "app", "type": "count", "window": "month", "limit": limit}
		c.requireNoError(c.nodes[0].adminClient().requestJSON(c.Context(), http.MethodPatch, "/admin/apps/"+x.name, map[string]any{"limits": map[string]any{"rate": []any{rate}}}, nil))
		token := c.createToken(x.name, "ana")
		request := func(n int) (in int, slowest time.Duration) {
			t.Helper()
			var mu sync.Mutex
			var all sync.WaitGroup
			for i := range n {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					began := time.Now()
					m := message{text: "hello " + itoa(i)}
					cl := &client{baseURL: c.nodes[i%2].baseURL, token: token, http: c.client}
					a, err := cl.doRequest(ctx, http.MethodPost, m.agentPath(), rpcCall("message:send", m.rpcParams()))
					mu.Lock()
					defer mu.Unlock()
					slowest = max(slowest, time.Since(began))
					switch {
					case err == nil && a.status == http.StatusOK:
						in++
					case err != nil || a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "":
						t.Errorf("%s: %d %.300s (%v)", x.name, a.status, a.body, err)
					}
				})
			}
			all.Wait()
			return in, slowest
		}
		if in, _ := request(before); in != before {
			t.Errorf("%s: %d of the first %d calls were let in", x.name, in, before)
		}
		for _, n := range c.nodes {
			n.redisProxy.setState(x.state)
			if x.state.refuses {
				n.redisProxy.cutConnections()
			}
		}
		// If this machine was too slow for Redis's timeout, the database has counted some calls before.
		counted := c.querySQL("SELECT CAST(COALESCE(SUM(used), 0) AS BIGINT) FROM rate_count WHERE tenant = (SELECT tenant FROM app WHERE name = $1)", x.name)[0][0].(int64)
		in, slowest := request(3 * limit)
		if want := limit - int(counted); in != want || slowest > 5*time.Second {
			t.Errorf("%s: without Redis %d calls were let in, want %d; the slowest answer took %v", x.name, in, want, slowest)
		}
		reportf(t, "%s: the slowest of %d answers took %v", x.name, 3*limit, slowest.Round(time.Millisecond))
		for _, n := range c.nodes {
			n.redisProxy.setState(linkUp)
			n.redisProxy.cutConnections() // so that dropped commands do not arrive later
		}
		time.Sleep(5500 * time.Millisecond)
		if in, _ := request(2 * limit); in > limit-before+int(counted) || in == 0 && x.state != linkHalfOpen { // a half-open Redis has counted calls whose answer was lost
			t.Errorf("%s: with Redis back %d calls were let in, want 1 to %d", x.name, in, limit-before+int(counted))
		}
	}
}
