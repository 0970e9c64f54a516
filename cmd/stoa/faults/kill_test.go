package faults_test

import (
	"testing"
	"time"
)

// killsPerCheck is the number of kills between two checks of the history.
const killsPerCheck = 50

// TestKills kills processes at random moments, repeatedly, under load: every acknowledged task ends, and no call that
// is not idempotent has two effects. It covers F1, F2 and F3 and their combinations.
func TestKills(t *testing.T) {
	t.Parallel()
	left := readCount(t, "STOA_FAULTS_KILLS", 1000, 15)
	r := newRand(t)
	c := startCluster(t, clusterOptions{nodes: 3, args: []string{"--queue-max-retries", "1000", "--queue-max-delay", "500ms"}})
	began, kills, messages := time.Now(), 0, 0
	for left > 0 {
		l := &loadGenerator{cluster: c, pickClient: c.randomClient, maxAttempts: 20, kinds: messageKinds}
		l.count = messages
		l.startClients(r, 6)
		for range min(left, killsPerCheck) {
			time.Sleep(time.Duration(r.IntN(250)) * time.Millisecond)
			n := c.nodes[r.IntN(len(c.nodes))]
			n.killProcess()
			if err := n.startProcess(); err != nil {
				l.stopClients()
				t.Fatal(err)
			}
			kills++
			left--
		}
		l.stopClients()
		messages = l.count
		c.checkHistory(l.history, c.nodes[0], time.Minute)
		if t.Failed() {
			break
		}
	}
	reportf(t, "%d kills, %d messages, %v", kills, messages, time.Since(began).Round(time.Second))
}
