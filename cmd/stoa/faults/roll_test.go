package faults_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"
)

// TestF19Rolls restarts every process of a fleet behind a load balancer, one after the other, repeatedly, under load.
// In the first round each is replaced by a later version, whose schema has one more migration. No request fails and
// no task is lost.
func TestF19Rolls(t *testing.T) {
	t.Parallel()
	rolls := readCount(t, "STOA_FAULTS_ROLLS", 20, 1)
	r := newRand(t)
	next := nextBuild.programPath(t) // no load while it is built
	c := startCluster(t, clusterOptions{nodes: 3})
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.baseURL[len("http://"):])
	}
	balancer := &client{baseURL: startBalancer(t, addrs...), token: c.token, http: c.client}
	c.waitWithin(setupTimeout, "the balancer finds the processes", func() bool {
		_, err := balancer.sendMessage(t.Context(), message{text: "hi"})
		return err == nil
	})
	l := &loadGenerator{cluster: c, pickClient: func(*rand.Rand) *client { return balancer }, maxAttempts: 3, kinds: append(messageKinds, "slow %s")}
	l.startClients(r, 8)
	began := time.Now()
	for range rolls {
		for _, n := range c.nodes {
			n.replaceProgram(next)
			sleepContext(context.Background(), 500*time.Millisecond)
		}
	}
	l.stopClients()
	failed := l.listFailures()
	reportf(t, "%d rolling restarts of %d processes in %v: %d messages, %d requests failed, p50 %v, p99 %v", rolls, len(c.nodes),
		time.Since(began).Round(time.Second), l.count, len(failed), l.latencyQuantile(.5), l.latencyQuantile(.99))
	for _, err := range failed[:min(len(failed), 20)] {
		t.Errorf("a request failed: %v", err)
	}
	c.checkHistory(l.history, c.nodes[0], time.Minute)
	if rows := c.querySQL("SELECT 1 FROM information_schema.columns WHERE column_name = 'faults_note'"); len(rows) != 1 {
		t.Error("the migration of the later version has not run")
	}
}
