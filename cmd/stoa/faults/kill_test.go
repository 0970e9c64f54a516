package faults_test

import (
	"testing"
	"time"
)

// batch is how many kills come between two checks of the history.
const batch = 50

// TestKills kills processes at random moments, over and over, under load: whatever was acknowledged ends, and no call
// that may not be repeated has two effects. The faults F1, F2 and F3 all happen, and all their mixtures.
func TestKills(t *testing.T) {
	t.Parallel()
	left := amount(t, "STOA_FAULTS_KILLS", 1000, 15)
	r := chance(t)
	c := up(t, setup{nodes: 3, args: []string{"--queue-max-retries", "1000", "--queue-max-delay", "500ms"}})
	began, kills, messages := time.Now(), 0, 0
	for left > 0 {
		l := &load{c: c, to: c.anyOf, tries: 20, kinds: kinds}
		l.count = messages
		l.begin(r, 6)
		for range min(left, batch) {
			time.Sleep(time.Duration(r.IntN(250)) * time.Millisecond)
			n := c.nodes[r.IntN(len(c.nodes))]
			n.kill()
			if err := n.start(); err != nil {
				l.end()
				t.Fatal(err)
			}
			kills++
			left--
		}
		l.end()
		messages = l.count
		c.check(l.history, c.nodes[0], time.Minute)
		if t.Failed() {
			break
		}
	}
	say(t, "%d kills, %d messages, %v", kills, messages, time.Since(began).Round(time.Second))
}
