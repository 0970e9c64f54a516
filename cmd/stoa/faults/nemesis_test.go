package faults_test

import (
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestNemesis breaks whatever there is to break, at random and several things at a time, while clients of all kinds call.
// Then everything is made whole, and what the clients were told must hold.
func TestNemesis(t *testing.T) {
	t.Parallel()
	length := 6 * time.Second
	if full {
		length = 3 * time.Minute
	}
	if text := os.Getenv("STOA_FAULTS_NEMESIS"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("STOA_FAULTS_NEMESIS: %v", err)
		}
	}
	r := chance(t)
	c := up(t, setup{nodes: 3, redis: true, args: []string{"--queue-max-retries", "1000", "--queue-max-delay", "500ms", "--shutdown-timeout", "2s"}})
	l := &load{c: c, to: c.anyOf, tries: 60, kinds: append(kinds, "slow %s", "careful %s"), cancels: true}
	l.begin(r, 8)
	done := map[string]int{}
	for began := time.Now(); time.Since(began) < length; {
		strike := strikes[r.IntN(len(strikes))]
		strike.do(c, c.nodes[r.IntN(len(c.nodes))], r)
		done[strike.name]++
		time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
	}
	for _, n := range c.nodes {
		n.pg.set(whole)
		n.redis.set(whole)
		if !n.Alive() {
			n.restart()
		}
	}
	l.end()
	say(t, "%v of %v, %d messages", length, done, l.count)
	c.check(l.history, c.nodes[0], time.Minute)
}

// strike is one way to hurt a process. It lasts for as long as do takes.
type strike struct {
	name string
	do   func(c *cluster, n *node, r *rand.Rand)
}

// some is a time up to d.
func some(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

var strikes = []strike{
	{"kill", func(c *cluster, n *node, r *rand.Rand) {
		n.kill()
		time.Sleep(some(r, time.Second))
		c.again(n)
	}},
	{"kill all", func(c *cluster, _ *node, r *rand.Rand) {
		for _, n := range c.nodes {
			n.kill()
		}
		time.Sleep(some(r, time.Second))
		for _, n := range c.nodes {
			c.again(n)
		}
	}},
	{"restart", func(c *cluster, n *node, _ *rand.Rand) {
		_ = n.End(syscall.SIGTERM)
		c.again(n)
	}},
	{"stop", func(_ *cluster, n *node, r *rand.Rand) {
		_ = n.Cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(some(r, 3*stale/2))
		_ = n.Cmd.Process.Signal(syscall.SIGCONT)
	}},
	{"cut PostgreSQL", func(_ *cluster, n *node, _ *rand.Rand) { n.pg.cut() }},
	{"slow PostgreSQL", func(_ *cluster, n *node, r *rand.Rand) {
		n.hurt(n.pg, wire{delay: some(r, 100*time.Millisecond)}, some(r, time.Second))
	}},
	{"no PostgreSQL", func(_ *cluster, n *node, r *rand.Rand) {
		n.pg.set(refused)
		n.pg.cut()
		time.Sleep(some(r, 2*time.Second))
		n.pg.set(whole)
	}},
	{"PostgreSQL swallowed", func(_ *cluster, n *node, r *rand.Rand) { n.hurt(n.pg, blackHole, some(r, 3*stale/2)) }},
	{"PostgreSQL half open", func(_ *cluster, n *node, r *rand.Rand) { n.hurt(n.pg, halfOpen, some(r, 3*stale/2)) }},
	{"PostgreSQL sessions ended", func(c *cluster, _ *node, _ *rand.Rand) {
		c.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	}},
	{"cut Redis", func(_ *cluster, n *node, _ *rand.Rand) { n.redis.cut() }},
	{"Redis swallowed", func(_ *cluster, n *node, r *rand.Rand) { n.hurt(n.redis, blackHole, some(r, time.Second)) }},
	{"Redis flushed", func(c *cluster, _ *node, _ *rand.Rand) { redisDo(c, c.cache.addr, "FLUSHALL") }},
}

// hurt puts a wire into a state for a while. What went into a hole is lost, so its connections are broken afterwards.
func (n *node) hurt(p *proxy, w wire, d time.Duration) {
	p.set(w)
	time.Sleep(d)
	p.set(whole)
	if w.in || w.out {
		p.cut()
	}
}

// again starts a process whose dependencies may be away at the moment.
func (c *cluster) again(n *node) {
	c.Helper()
	err := n.start()
	for try := 0; err != nil && try < 5; try++ {
		time.Sleep(200 * time.Millisecond)
		err = n.start()
	}
	if err != nil {
		c.Fatal(err)
	}
	if out := n.Output(); strings.Contains(out, "panic:") {
		c.Errorf("a process panicked:\n%s", tail(out, 3000))
	}
}
