package faults_test

import (
	"net/http"
	"testing"
	"time"
)

// TestF7Redis takes Redis away in all the ways there are while clients call and listen, under limits and a budget that
// nobody reaches. Nobody is refused, streams of tasks that run elsewhere read the log, and senders of deliveries are called back.
func TestF7Redis(t *testing.T) {
	t.Parallel()
	c := up(t, setup{nodes: 2, redis: true})
	rates := []any{map[string]any{"per": "app", "type": "count", "window": "month", "limit": 1 << 30}, map[string]any{"per": "agent", "type": "token", "window": "day", "limit": 1 << 30}}
	c.must(c.nodes[0].admin().ask(c.Context(), http.MethodPut, "/admin/apps/acme", map[string]any{"limits": map[string]any{"rate": rates}}, nil))
	budget := map[string]any{"name": "cap", "unit": "calls", "amount": 1 << 30, "window": "month", "hard": true}
	c.must(c.nodes[0].admin().ask(c.Context(), http.MethodPost, "/admin/apps/acme/budgets", budget, nil))
	l := &load{c: c, to: c.anyOf, kinds: append(kinds, "slow %s")}
	l.begin(chance(t), 4)
	for _, x := range []struct {
		name  string
		state wire
	}{{"refused", refused}, {"black hole", blackHole}, {"half open", halfOpen}} {
		for _, n := range c.nodes {
			n.redis.set(x.state)
			if x.state.refuse {
				n.redis.cut()
			}
		}
		id := c.live(c.nodes[0], message{text: "slow " + x.name[:4]})
		began := time.Now()
		log, err := c.nodes[1].log(t.Context(), "", id)
		c.must(err)
		if took := time.Since(began); took > 4*time.Second || !log[len(log)-1].ended() {
			t.Errorf("%s: who listens at the other process has the end after %v", x.name, took)
		}
		word := "redis-" + x.name[:4]
		c.callBack(c.nodes[0], "hello "+word, word)
		c.within(10*time.Second, "the sender of a delivery is called back", func() bool { return len(c.tools.of("callback/"+word)) > 0 })
		for _, n := range c.nodes {
			n.redis.set(whole)
		}
		time.Sleep(300 * time.Millisecond)
	}
	c.cache.kill()
	time.Sleep(time.Second)
	c.cache.start()
	time.Sleep(500 * time.Millisecond)
	l.end()
	for _, err := range l.failures() {
		t.Errorf("a request failed: %v", err)
	}
	c.check(l.history, c.nodes[0], rescue)
	for _, word := range []string{"redis-refu", "redis-blac", "redis-half"} {
		if n := len(c.tools.of("callback/" + word)); n != 1 {
			t.Errorf("%s: the sender of a delivery was called back %d times", word, n)
		}
	}
}

// TestF8Flush empties Redis, and breaks its connections, over and over under load: nothing is lost, nothing comes twice.
func TestF8Flush(t *testing.T) {
	t.Parallel()
	c := up(t, setup{nodes: 2, redis: true})
	l := &load{c: c, to: c.anyOf, kinds: append(kinds, "slow %s")}
	r := chance(t)
	l.begin(r, 4)
	for range 20 {
		time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
		redisDo(t, c.cache.addr, "FLUSHALL")
		if r.IntN(3) == 0 {
			c.nodes[r.IntN(2)].redis.cut()
		}
	}
	l.end()
	for _, err := range l.failures() {
		t.Errorf("a request failed: %v", err)
	}
	c.check(l.history, c.nodes[0], rescue)
	a, err := c.nodes[0].do(t.Context(), http.MethodGet, "/ready", nil)
	if err != nil || a.status != http.StatusOK {
		t.Errorf("/ready says %d (%v)", a.status, err)
	}
}
