package faults_test

import (
	"net/http"
	"testing"
	"time"
)

// TestF7Redis makes Redis unavailable in every way while clients call and subscribe, under limits and a budget that
// are never reached. No call is refused, streams of tasks that run elsewhere read the log, and callbacks are sent.
func TestF7Redis(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 2, redis: true})
	rates := []any{map[string]any{"per": "app", "type": "count", "window": "month", "limit": 1 << 30}, map[string]any{"per": "agent", "type": "token", "window": "day", "limit": 1 << 30}}
	c.requireNoError(c.nodes[0].adminClient().requestJSON(c.Context(), http.MethodPatch, "/admin/apps/acme", map[string]any{"limits": map[string]any{"rate": rates}}, nil))
	budget := map[string]any{"name": "cap", "unit": "calls", "amount": 1 << 30, "window": "month", "hard": true}
	c.requireNoError(c.nodes[0].adminClient().requestJSON(c.Context(), http.MethodPost, "/admin/apps/acme/budgets", budget, nil))
	l := &loadGenerator{cluster: c, pickClient: c.randomClient, kinds: append(messageKinds, "slow %s")}
	l.startClients(newRand(t), 4)
	for _, x := range []struct {
		name  string
		state linkState
	}{{"refused", linkRefused}, {"black hole", linkBlackHole}, {"half open", linkHalfOpen}} {
		for _, n := range c.nodes {
			n.redisProxy.setState(x.state)
			if x.state.refuses {
				n.redisProxy.cutConnections()
			}
		}
		c.checkEndReachesOther(x.name)
		word := "redis-" + x.name[:4]
		c.deliverWithCallback(c.nodes[0], "hello "+word, word)
		c.waitWithin(setupTimeout, "the sender of a delivery is called back", func() bool { return len(c.tools.effectsNamed("callback/"+word)) > 0 })
		for _, n := range c.nodes {
			n.redisProxy.setState(linkUp)
		}
		time.Sleep(300 * time.Millisecond)
	}
	c.redisServer.killProgram()
	time.Sleep(time.Second)
	c.redisServer.startProgram()
	time.Sleep(500 * time.Millisecond)
	l.stopClients()
	for _, err := range l.listFailures() {
		t.Errorf("a request failed: %v", err)
	}
	c.checkHistory(l.history, c.nodes[0], rescueTimeout)
	for _, word := range []string{"redis-refu", "redis-blac", "redis-half"} {
		if n := len(c.tools.effectsNamed("callback/" + word)); n != 1 {
			t.Errorf("%s: the sender of a delivery was called back %d times", word, n)
		}
	}
}

// checkEndReachesOther fails the test if who listens at the second process has the end of a task at the first in no more than
// 4 s not even once in three times. A busy machine may take longer once.
func (c *cluster) checkEndReachesOther(outage string) {
	c.Helper()
	var took time.Duration
	for range 3 {
		id := c.startTaskAt(c.nodes[0], message{text: "slow " + outage[:4]})
		began := time.Now()
		log, err := c.nodes[1].readLog(c.Context(), "", id)
		c.requireNoError(err)
		if !log[len(log)-1].isTerminal() {
			c.Errorf("%s: who listens at the other process does not have the end", outage)
		}
		if took = time.Since(began); took <= 4*time.Second {
			return
		}
	}
	c.Errorf("%s: who listens at the other process has the end after %v", outage, took)
}

// TestF8Flush empties Redis and cuts its connections repeatedly under load: nothing is lost, nothing is duplicated.
func TestF8Flush(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 2, redis: true})
	l := &loadGenerator{cluster: c, pickClient: c.randomClient, kinds: append(messageKinds, "slow %s")}
	r := newRand(t)
	l.startClients(r, 4)
	for range 20 {
		time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
		sendRedisCommand(t, c.redisServer.addr, "FLUSHALL")
		if r.IntN(3) == 0 {
			c.nodes[r.IntN(2)].redisProxy.cutConnections()
		}
	}
	l.stopClients()
	for _, err := range l.listFailures() {
		t.Errorf("a request failed: %v", err)
	}
	c.checkHistory(l.history, c.nodes[0], rescueTimeout)
	a, err := c.nodes[0].doRequest(t.Context(), http.MethodGet, "/ready", nil)
	if err != nil || a.status != http.StatusOK {
		t.Errorf("/ready says %d (%v)", a.status, err)
	}
}
