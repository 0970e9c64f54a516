package faults_test

import (
	"testing"
	"time"
)

// TestF9Clock has two of three replicas ten minutes off, one before and one behind, and calls at all of them. Nobody takes a run
// early from somebody who lives, what a dead one leaves is taken in time, no tick comes early or twice, and tokens, streams and
// sequences hold.
func TestF9Clock(t *testing.T) {
	t.Parallel()
	requireFull(t)
	reportSkipped(t, "callers of the replica that is behind who come with a token of the last ten minutes: it is of the future there; they come with a key")
	clocks := []string{"0", "600", "-600"}
	c := startCluster(t, clusterOptions{nodes: 3, build: skewedBuild, env: func(n int) []string { return []string{"STOA_FAULTS_CLOCK=" + clocks[n]} }})
	right, ahead, behind := c.nodes[0], c.nodes[1], c.nodes[2]
	const agents = 30
	c.createApp("timed", c.timedConfig(agents))
	for _, n := range c.nodes { // tokens are of the database's time, whoever mints them
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

	// Calls are under way at all three for longer than the others' patience with the dead.
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
		t.Errorf("the model was asked %d times for %d calls under way: somebody took a run that was not his", n, len(ids))
	}
	l.stopClients()
	for _, err := range l.listFailures() {
		t.Errorf("a request failed: %v", err)
	}

	// The one whose clock is ahead dies; those that are right and behind take over, neither early nor late.
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
