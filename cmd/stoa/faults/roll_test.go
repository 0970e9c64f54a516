package faults_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// TestF19Rolls restarts every process of a fleet behind a balancer, one after the other, over and over, under load. The
// first time around each comes back as a later version, whose schema has one more migration. No request fails and no
// task is lost.
func TestF19Rolls(t *testing.T) {
	t.Parallel()
	rolls := amount(t, "STOA_FAULTS_ROLLS", 20, 1)
	r := chance(t)
	c := up(t, setup{nodes: 3})
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.base[len("http://"):])
	}
	door := &client{base: newBalancer(t, addrs...), token: c.token, http: c.client}
	c.within(10*time.Second, "the balancer finds the processes", func() bool {
		_, err := door.send(t.Context(), message{text: "hi"})
		return err == nil
	})
	l := &load{c: c, to: func(*rand.Rand) *client { return door }, tries: 3, kinds: append(kinds, "slow %s")}
	l.begin(r, 8)
	began := time.Now()
	for range rolls {
		for _, n := range c.nodes {
			if err := n.End(syscall.SIGTERM); err != nil {
				t.Errorf("a process ended with %v:\n%s", err, tail(n.Output(), 2000))
			}
			n.program = younger.program(t)
			n.restart()
			c.within(10*time.Second, "the process is ready", func() bool {
				a, err := n.do(t.Context(), http.MethodGet, "/ready", nil)
				return err == nil && a.status == http.StatusOK
			})
			wait(context.Background(), 500*time.Millisecond)
		}
	}
	l.end()
	failed := l.failures()
	say(t, "%d rolling restarts of %d processes in %v: %d messages, %d requests failed, p50 %v, p99 %v", rolls, len(c.nodes),
		time.Since(began).Round(time.Second), l.count, len(failed), l.quantile(.5), l.quantile(.99))
	for _, err := range failed[:min(len(failed), 20)] {
		t.Errorf("a request failed: %v", err)
	}
	c.check(l.history, c.nodes[0], time.Minute)
	if rows := c.sql("SELECT 1 FROM information_schema.columns WHERE column_name = 'faults_note'"); len(rows) != 1 {
		t.Error("the migration of the later version has not run")
	}
}
