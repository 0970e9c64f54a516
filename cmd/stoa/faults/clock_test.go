package faults_test

import (
	"testing"
	"time"
)

// TestF9Clock has two of three replicas ten minutes off, one before and one behind. Nobody takes a run early from
// somebody who lives, what a dead one leaves is taken in time, and tokens, streams and sequences hold.
func TestF9Clock(t *testing.T) {
	t.Parallel()
	onlyFull(t)
	leftOut(t, "ticks: there are no schedules yet")
	clocks := []string{"0", "600", "-600"}
	c := up(t, setup{nodes: 3, build: skewed, env: func(n int) []string { return []string{"STOA_FAULTS_CLOCK=" + clocks[n]} }})
	l := &load{c: c, to: c.anyOf, kinds: append(kinds, "slow %s")}
	l.begin(chance(t), 4)

	// Each has a call under way for longer than the others' patience with the dead.
	var ids []string
	held := c.model.gates.close("hello")
	for i, n := range c.nodes {
		ids = append(ids, c.live(n, message{agent: "modelled", text: "hello", context: "c" + itoa(i)}))
		held.await(t)
	}
	time.Sleep(3 * stale)
	if n := c.model.asked("hello"); n != 3 {
		t.Errorf("the model was asked %d times for three calls under way: somebody took a run that was not his", n)
	}
	l.end()
	for _, err := range l.failures() {
		t.Errorf("a request failed: %v", err)
	}

	// The one whose clock is ahead dies; those that are right and behind take over, neither early nor late.
	c.nodes[1].kill()
	began := time.Now()
	held.release()
	for i, n := range []*node{c.nodes[0], c.nodes[2], c.nodes[2]} {
		c.restsAs(n, "modelled", ids[i], "completed", rescue)
	}
	say(t, "the dead one's task ended %v after its death", time.Since(began).Round(time.Millisecond))
	if n := c.model.asked("hello"); n != 4 {
		t.Errorf("the model was asked %d times, want 4", n)
	}
	c.check(l.history, c.nodes[0], rescue)
}
