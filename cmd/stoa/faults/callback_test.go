package faults_test

import (
	"testing"
	"time"
)

// deliverWithCallback sends a delivery of a text to the webhook of the app acme and returns its task. The callback
// goes to the recorder, under the name callback/ and word.
func (c *cluster) deliverWithCallback(n *node, text, word string) (task string) {
	c.Helper()
	out, err := n.sendDelivery(c.Context(), "acme", map[string]any{"text": text, "callback_url": c.tools.URL + "/callback/" + word})
	c.requireNoError(err)
	if out.Status != "accepted" {
		c.Fatalf("the delivery %q is %s", text, out.Status)
	}
	return out.TaskID
}

// TestCallbackKill kills a process between the end of a task and its callback, and all processes during a callback.
// Another process posts it with the same id; a callback that was answered is not posted again.
func TestCallbackKill(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 2})
	last := c.nodes[1]

	blocked := c.tools.barriers.blockRequests("ended")
	id := c.deliverWithCallback(c.nodes[0], "record ended", "ended")
	blocked.waitForRequest(t)
	free := c.acquireLock("LOCK TABLE receiver IN EXCLUSIVE MODE") // no process can claim a callback now
	blocked.releaseRequests()
	c.waitForState(last, "hooked", id, "completed", rescueTimeout)
	if reported := c.tools.effectsNamed("callback/ended"); len(reported) > 0 {
		t.Fatalf("the callback has gone out: %v", reported)
	}
	c.nodes[0].killProcess()
	free()
	c.waitWithin(setupTimeout, "the other process calls back", func() bool { return len(c.tools.effectsNamed("callback/ended")) == 1 })

	c.nodes[0].restartProcess()
	way := c.tools.barriers.blockRequests("callback/way")
	c.deliverWithCallback(last, "hello way", "way")
	way.waitForRequest(t)
	for _, n := range c.nodes {
		n.killProcess()
	}
	way.releaseRequests()
	last.restartProcess()
	c.waitWithin(setupTimeout, "it is posted again", func() bool { return len(c.tools.effectsNamed("callback/way")) == 2 })
	c.setDatabaseTime(c.databaseTime().Add(time.Hour))
	time.Sleep(staleThreshold)
	reported := c.tools.effectsNamed("callback/way")
	if len(reported) != 2 || reported[0].key != reported[1].key || reported[0].key == "" {
		t.Errorf("a callback that was cut off and answered the second time was posted as %v", reported)
	}
	if n := len(c.tools.effectsNamed("callback/ended")); n != 1 {
		t.Errorf("a callback that was answered was posted %d times", n)
	}
}
