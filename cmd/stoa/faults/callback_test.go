package faults_test

import (
	"testing"
	"time"
)

// callBack sends a delivery of a text to the webhook of the app acme, and returns the task that it has led to. What comes of it is
// to be posted to the recorder, under the name callback/ and a word.
func (c *cluster) callBack(n *node, text, word string) (task string) {
	c.Helper()
	out, err := n.deliver(c.Context(), "acme", map[string]any{"text": text, "callback_url": c.tools.URL + "/callback/" + word})
	c.must(err)
	if out.Status != "accepted" {
		c.Fatalf("the delivery %q is %s", text, out.Status)
	}
	return out.TaskID
}

// TestCallbackKill kills a process after a task has ended and before its callback goes out, and all of them while a callback
// is under way. Another process posts it, under the same id; what was answered is not posted again.
func TestCallbackKill(t *testing.T) {
	t.Parallel()
	c := up(t, setup{nodes: 2})
	last := c.nodes[1]

	held := c.tools.gates.close("ended")
	id := c.callBack(c.nodes[0], "record ended", "ended")
	held.await(t)
	free := c.hold("LOCK TABLE receiver IN EXCLUSIVE MODE") // nobody can take a callback now
	held.release()
	c.restsAs(last, "hooked", id, "completed", rescue)
	if told := c.tools.of("callback/ended"); len(told) > 0 {
		t.Fatalf("the callback has gone out: %v", told)
	}
	c.nodes[0].kill()
	free()
	c.within(30*time.Second, "the other process calls back", func() bool { return len(c.tools.of("callback/ended")) == 1 })

	c.nodes[0].restart()
	way := c.tools.gates.close("callback/way")
	c.callBack(last, "hello way", "way")
	way.await(t)
	for _, n := range c.nodes {
		n.kill()
	}
	way.release()
	last.restart()
	c.within(30*time.Second, "it is posted again", func() bool { return len(c.tools.of("callback/way")) == 2 })
	c.setTime(c.time().Add(time.Hour))
	time.Sleep(stale)
	told := c.tools.of("callback/way")
	if len(told) != 2 || told[0].key != told[1].key || told[0].key == "" {
		t.Errorf("a callback that was cut off and answered the second time was posted as %v", told)
	}
	if n := len(c.tools.of("callback/ended")); n != 1 {
		t.Errorf("a callback that was answered was posted %d times", n)
	}
}
