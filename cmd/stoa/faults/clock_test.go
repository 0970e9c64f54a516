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
	onlyFull(t)
	leftOut(t, "callers of the replica that is behind who come with a token of the last ten minutes: it is of the future there; they come with a key")
	clocks := []string{"0", "600", "-600"}
	c := up(t, setup{nodes: 3, build: skewed, env: func(n int) []string { return []string{"STOA_FAULTS_CLOCK=" + clocks[n]} }})
	right, ahead, behind := c.nodes[0], c.nodes[1], c.nodes[2]
	const agents = 30
	c.app("timed", c.timed(agents))
	for _, n := range c.nodes { // tokens are of the database's time, whoever mints them
		token := n.mint("acme", "eve")
		for _, at := range []*node{right, ahead} {
			_, err := (&client{base: at.base, token: token, http: c.client}).send(t.Context(), message{text: "hi"})
			c.must(err)
		}
	}
	key := c.key("acme")
	for _, n := range c.nodes {
		n.token = key
	}
	l := &load{c: c, to: c.anyOf, kinds: append(kinds, "slow %s")}
	l.begin(chance(t), 4)

	// Calls are under way at all three for longer than the others' patience with the dead.
	held := c.model.gates.close("hello")
	var ids []string
	for _, n := range []*node{right, ahead, behind} {
		ids = append(ids, c.live(n, message{agent: "modelled", text: "hello"}))
	}
	for range 10 {
		ids = append(ids, c.begin(right, message{agent: "modelled", text: "hello"}))
	}
	for range ids {
		held.await(t)
	}
	c.known(agents + 1)
	c.sql(`UPDATE schedule SET next_at = stoa_now() + 300000000 WHERE agent = 'half' RETURNING agent`)
	c.hours(agents, func() {})
	time.Sleep(3 * stale)
	if _, n := c.ticks("half"); n != 0 {
		t.Errorf("a schedule that is due in five minutes has started %d tasks", n)
	}
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
