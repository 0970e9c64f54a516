package faults_test

import (
	"testing"
	"time"
)

// TestF9Clock runs two of three replicas with clocks that are ten minutes off, one ahead and one behind, and calls
// all of them. No run of a live worker is taken, runs of a dead one are taken in time, no tick is early or duplicate,
// and tokens, streams and sequences work.
func TestF9Clock(t *testing.T) {
	t.Parallel()
	requireFull(t)
	reportSkipped(t, "callers of the replica that is behind who come with a token of the last ten minutes: it is of the future there; they come with a key")
	clocks := []string{"0", "600", "-600"}
	c := startCluster(t, clusterOptions{nodes: 3, build: skewedBuild, env: func(n int) []string { return []string{"STOA_FAULTS_CLOCK=" + clocks[n]} }})
	right, ahead, behind := c.nodes[0], c.nodes[1], c.nodes[2]
	const agents = 30
	c.createApp("timed", c.timedConfig(agents))
	// Tokens have the database's time, whichever process issues them.
	for _, n := range c.nodes {
		token := n.createToken("acme", "eve")
		for _, at := range []*node{right, ahead} {
			_, err := (&client{baseURL: at.baseURL, token: token, http: c.client}).sendMessage(t.Context(), message{text: "hi"})
			c.requireNoError(err)
		}
	}
	key := c.createAPIKey("acme")
	for _, n := range c.nodes {
		n.token = key
	}
	l := &loadGenerator{cluster: c, pickClient: c.randomClient, kinds: append(messageKinds, "slow %s")}
	l.startClients(newRand(t), 4)

	// Calls are in progress at all three for longer than the stale threshold.
	blocked := c.model.barriers.blockRequests("hello")
	var ids []string
	for _, n := range []*node{right, ahead, behind} {
		ids = append(ids, c.startTaskAt(n, message{agent: "modelled", text: "hello"}))
	}
	for range 10 {
		ids = append(ids, c.sendBackground(right, message{agent: "modelled", text: "hello"}))
	}
	for range ids {
		blocked.waitForRequest(t)
	}
	c.waitForSchedules(agents + 1)
	c.querySQL(`UPDATE schedule SET next_at = stoa_now() + 300000000 WHERE agent = 'half' RETURNING agent`)
	c.runHourlyTicks(agents, func() {})
	time.Sleep(3 * staleThreshold)
	if _, n := c.queryTicks("half"); n != 0 {
		t.Errorf("a schedule that is due in five minutes has started %d tasks", n)
	}
	if n := c.model.countCalls("hello"); n != len(ids) {
		t.Errorf("the model was asked %d times for %d calls under way: a worker took a run of another", n, len(ids))
	}
	l.stopClients()
	for _, err := range l.listFailures() {
		t.Errorf("a request failed: %v", err)
	}

	// The replica that is ahead dies; the others take over, neither early nor late.
	ahead.killProcess()
	began := time.Now()
	blocked.releaseRequests()
	for _, id := range ids {
		c.waitForState(right, "modelled", id, "completed", rescueTimeout)
	}
	reportf(t, "the dead one's tasks ended %v after its death, the model was asked %d times for %d tasks",
		time.Since(began).Round(time.Millisecond), c.model.countCalls("hello"), len(ids))
	c.checkHistory(l.history, right, rescueTimeout)
}
