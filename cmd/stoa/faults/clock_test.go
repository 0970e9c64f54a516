package faults_test

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestF9Clock has two of three replicas ten minutes off, one before and one behind. Nobody takes a run early from
// somebody who lives, what a dead one leaves is taken in time, and tokens, streams and sequences hold.
func TestF9Clock(t *testing.T) {
	t.Parallel()
	onlyFull(t)
	leftOut(t, "callers of the replica that is behind: it takes tokens that were minted within the last ten minutes for tokens of the future")
	clocks := []string{"0", "600", "-600"}
	c := up(t, setup{nodes: 3, build: skewed, env: func(n int) []string { return []string{"STOA_FAULTS_CLOCK=" + clocks[n]} }})
	right, ahead := c.nodes[0], c.nodes[1]
	l := &load{c: c, to: func(r *rand.Rand) *client { return c.nodes[r.IntN(2)].client }, kinds: append(kinds, "slow %s")}
	l.begin(chance(t), 4)

	// Calls are under way at all three for longer than the others' patience with the dead.
	held := c.model.gates.close("hello")
	ids := []string{c.live(right, message{agent: "modelled", text: "hello"}), c.live(ahead, message{agent: "modelled", text: "hello"})}
	for range 10 {
		ids = append(ids, c.begin(right, message{agent: "modelled", text: "hello"}))
	}
	for range ids {
		held.await(t)
	}
	time.Sleep(3 * stale)
	if n := c.model.asked("hello"); n != len(ids) {
		t.Errorf("the model was asked %d times for %d calls under way: somebody took a run that was not his", n, len(ids))
	}
	l.end()
	for _, err := range l.failures() {
		t.Errorf("a request failed: %v", err)
	}

	// The one whose clock is ahead dies; those that are right and behind take over, neither early nor late.
	ahead.kill()
	began := time.Now()
	held.release()
	for _, id := range ids {
		c.restsAs(right, "modelled", id, "completed", rescue)
	}
	say(t, "the dead one's tasks ended %v after its death, the model was asked %d times for %d tasks",
		time.Since(began).Round(time.Millisecond), c.model.asked("hello"), len(ids))
	c.check(l.history, right, rescue)
}
