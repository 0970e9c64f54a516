package faults_test

import (
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestNemesis injects all faults at random, several at a time, while clients of all kinds call. Then all faults end,
// and the history must hold.
func TestNemesis(t *testing.T) {
	t.Parallel()
	length := 6 * time.Second
	if isFull {
		length = 3 * time.Minute
	}
	if text := os.Getenv("STOA_FAULTS_NEMESIS"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("STOA_FAULTS_NEMESIS: %v", err)
		}
	}
	r := newRand(t)
	c := startCluster(t, clusterOptions{nodes: 3, redis: true, args: []string{"--queue-max-retries", "1000", "--queue-max-delay", "500ms", "--shutdown-timeout", "2s"}})
	l := &loadGenerator{cluster: c, pickClient: c.randomClient, maxAttempts: 60, kinds: append(messageKinds, "slow %s", "careful %s"), cancels: true}
	l.startClients(r, 8)
	done := map[string]int{}
	for began := time.Now(); time.Since(began) < length; {
		strike := faultActions[r.IntN(len(faultActions))]
		strike.run(c, c.nodes[r.IntN(len(c.nodes))], r)
		done[strike.name]++
		time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
	}
	for _, n := range c.nodes {
		n.postgresProxy.setState(linkUp)
		n.redisProxy.setState(linkUp)
		if !n.IsAlive() {
			n.restartProcess()
		}
	}
	l.stopClients()
	reportf(t, "%v of %v, %d messages", length, done, l.count)
	c.checkHistory(l.history, c.nodes[0], time.Minute)
}

// faultAction is one fault of a process. It lasts as long as its function runs.
type faultAction struct {
	name string
	run  func(c *cluster, n *node, r *rand.Rand)
}

// randomDuration returns a random duration up to d.
func randomDuration(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(d)))
}

var faultActions = []faultAction{
	{"kill", func(c *cluster, n *node, r *rand.Rand) {
		n.killProcess()
		time.Sleep(randomDuration(r, time.Second))
		c.restartWithRetry(n)
	}},
	{"kill all", func(c *cluster, _ *node, r *rand.Rand) {
		for _, n := range c.nodes {
			n.killProcess()
		}
		time.Sleep(randomDuration(r, time.Second))
		for _, n := range c.nodes {
			c.restartWithRetry(n)
		}
	}},
	{"restart", func(c *cluster, n *node, _ *rand.Rand) {
		_ = n.SignalAndWait(syscall.SIGTERM)
		c.restartWithRetry(n)
	}},
	{"stop", func(_ *cluster, n *node, r *rand.Rand) {
		_ = n.Cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(randomDuration(r, 3*staleThreshold/2))
		_ = n.Cmd.Process.Signal(syscall.SIGCONT)
	}},
	{"cut PostgreSQL", func(_ *cluster, n *node, _ *rand.Rand) { n.postgresProxy.cutConnections() }},
	{"slow PostgreSQL", func(_ *cluster, n *node, r *rand.Rand) {
		n.disturbProxy(n.postgresProxy, linkState{delay: randomDuration(r, 100*time.Millisecond)}, randomDuration(r, time.Second))
	}},
	{"no PostgreSQL", func(_ *cluster, n *node, r *rand.Rand) {
		n.postgresProxy.setState(linkRefused)
		n.postgresProxy.cutConnections()
		time.Sleep(randomDuration(r, 2*time.Second))
		n.postgresProxy.setState(linkUp)
	}},
	{"PostgreSQL swallowed", func(_ *cluster, n *node, r *rand.Rand) {
		n.disturbProxy(n.postgresProxy, linkBlackHole, randomDuration(r, 3*staleThreshold/2))
	}},
	{"PostgreSQL half open", func(_ *cluster, n *node, r *rand.Rand) {
		n.disturbProxy(n.postgresProxy, linkHalfOpen, randomDuration(r, 3*staleThreshold/2))
	}},
	{"PostgreSQL sessions ended", func(c *cluster, _ *node, _ *rand.Rand) {
		c.querySQL("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	}},
	{"cut Redis", func(_ *cluster, n *node, _ *rand.Rand) { n.redisProxy.cutConnections() }},
	{"Redis swallowed", func(_ *cluster, n *node, r *rand.Rand) {
		n.disturbProxy(n.redisProxy, linkBlackHole, randomDuration(r, time.Second))
	}},
	{"Redis flushed", func(c *cluster, _ *node, _ *rand.Rand) { sendRedisCommand(c, c.redisServer.addr, "FLUSHALL") }},
}

// disturbProxy sets the state of a proxy for a while. Dropped data is lost, so that the connections are cut
// afterwards.
func (n *node) disturbProxy(p *proxy, w linkState, d time.Duration) {
	p.setState(w)
	time.Sleep(d)
	p.setState(linkUp)
	if w.dropsRequests || w.dropsResponses {
		p.cutConnections()
	}
}

// restartWithRetry starts a process whose dependencies may be unavailable at the moment.
func (c *cluster) restartWithRetry(n *node) {
	c.Helper()
	err := n.startProcess()
	for try := 0; err != nil && try < 5; try++ {
		time.Sleep(200 * time.Millisecond)
		err = n.startProcess()
	}
	if err != nil {
		c.Fatal(err)
	}
	if out := n.Output(); strings.Contains(out, "panic:") {
		c.Errorf("a process panicked:\n%s", lastBytes(out, 3000))
	}
}
