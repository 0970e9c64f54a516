package faults_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"stoa/cmd/stoa/stoatest"
)

// requestDeadline is how long a request may take until it is accepted or refused: the server's own deadline, the
// check after a commit with an unknown outcome, and time for the connection.
const requestDeadline = 30*time.Second + 5*time.Second + 2*time.Second

// TestF5Restart restarts PostgreSQL under load, once as an operator does and once by a crash. Meanwhile requests are
// answered with Retry-After, and soon after it accepts connections they succeed again. Nothing that was acknowledged
// is lost.
func TestF5Restart(t *testing.T) {
	t.Parallel()
	pg := newPostgres(t)
	c := startCluster(t, clusterOptions{nodes: 2, database: pg.createDatabase("stoa"), args: []string{"--queue-max-retries", "100", "--queue-max-delay", "500ms"}})
	l := &loadGenerator{cluster: c, pickClient: c.randomClient, maxAttempts: 60, kinds: messageKinds}
	l.startClients(newRand(t), 6)
	for _, mode := range []string{"fast", "immediate"} {
		time.Sleep(time.Second)
		pg.stopServer(mode)
		c.waitWithin(5*time.Second, "a call is told to come back", func() bool { return c.isRetryLater(c.nodes[0]) })
		c.checkAliveNotReady("while PostgreSQL is down")
		pg.startServer()
		for i, n := range c.nodes {
			took := c.waitWithin(5*time.Second, "calls are answered again", func() bool {
				_, err := n.sendMessage(t.Context(), message{text: "hi"})
				return err == nil
			})
			reportf(t, "%s: process %d answers %v after PostgreSQL accepts", mode, i+1, took.Round(time.Millisecond))
		}
	}
	l.stopClients()
	c.checkHistory(l.history, c.nodes[1], time.Minute)
	for _, err := range l.listFailures() {
		if s := statusOf(err); s != 0 && s != http.StatusServiceUnavailable {
			t.Errorf("a request was answered %v", err)
		}
	}
}

// isRetryLater reports whether a call to n is answered with 503 and Retry-After.
func (c *cluster) isRetryLater(n *node) bool {
	c.Helper()
	_, err := n.sendMessage(c.Context(), message{text: "hi"})
	var r *responseError
	if r, _ = err.(*responseError); r == nil { //nolint:errorlint // what the client returns as it is
		return false
	}
	if r.status != http.StatusServiceUnavailable || r.retryAfter == "" {
		c.Errorf("a call without a database is answered %v, Retry-After %q", err, r.retryAfter)
	}
	return true
}

// checkAliveNotReady requires each process to report within two seconds that it is alive and within six that it is
// not ready.
func (c *cluster) checkAliveNotReady(when string) {
	c.Helper()
	for _, n := range c.nodes {
		ctx, cancel := context.WithTimeout(c.Context(), 2*time.Second)
		a, err := n.doRequest(ctx, http.MethodGet, "/health", nil)
		cancel()
		if err != nil || a.status != http.StatusOK {
			c.Errorf("%s /health says %d (%v)", when, a.status, err)
		}
		c.waitWithin(6*time.Second, when+" a process is not ready", func() bool {
			a, err := n.doRequest(c.Context(), http.MethodGet, "/ready", nil)
			return err == nil && a.status == http.StatusServiceUnavailable
		})
	}
}

// TestF6Network makes PostgreSQL slow, unreachable in every way, and reachable again: every request ends by its
// deadline, the processes are alive and not ready, and afterwards they work as before.
func TestF6Network(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 2})
	answered := func() bool {
		for _, n := range c.nodes {
			if _, err := n.sendMessage(t.Context(), message{text: "hi"}); err != nil {
				return false
			}
		}
		return true
	}
	c.waitWithin(10*time.Second, "calls are answered", answered)
	c.sendMany(40)
	before := c.countGoroutines()
	for _, x := range []struct {
		name  string
		state linkState
		slow  bool // responses still arrive
		long  bool
	}{
		{"slow", linkState{delay: 100 * time.Millisecond}, true, false},
		{"refused", linkRefused, false, false},
		{"black hole", linkBlackHole, false, true},
		{"half open", linkHalfOpen, false, true},
	} {
		if x.long && !isFull {
			reportSkipped(t, "%s: every request waits for its deadline there; make faults does it", x.name)
			continue
		}
		c.setDatabaseLinks(x.state)
		if x.state.refuses || x.slow {
			for _, n := range c.nodes {
				n.postgresProxy.cutConnections()
			}
		}
		if x.slow { // leases are renewed over new connections, which take longer
			time.Sleep(staleThreshold)
			c.waitWithin(requestDeadline, "calls are answered over slow wires", answered)
		}
		failed, longest := c.sendMany(40)
		reportf(t, "%s: %d of 40 requests failed, the longest took %v", x.name, failed, longest.Round(time.Millisecond))
		if longest > requestDeadline || x.slow && failed > 0 || !x.slow && failed != 40 {
			t.Errorf("%s: %d of 40 requests failed, the longest took %v", x.name, failed, longest)
		}
		if !x.slow {
			c.checkAliveNotReady("with PostgreSQL " + x.name)
		}
		c.setDatabaseLinks(linkUp)
		took := c.waitWithin(15*time.Second, "calls are answered again after "+x.name, answered)
		reportf(t, "%s: answers %v after it was over", x.name, took.Round(time.Millisecond))
	}
	var after float64
	for range 100 {
		if after = c.countGoroutines(); after <= before+20 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if after > before+20 {
		t.Errorf("%.0f goroutines before, %.0f after", before, after)
	}
}

// TestF6Claim drops the responses to all processes' claims of runs while the connections stay open: queued runs are
// still claimed when responses arrive again.
func TestF6Claim(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 2})
	free := c.acquireLock("LOCK TABLE run IN ACCESS EXCLUSIVE MODE")
	defer free()
	c.waitWithin(setupTimeout, "each process waits for its claim", func() bool {
		waiting := c.querySQL(`SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'UPDATE run SET ready = TRUE%'`)
		return len(waiting) >= len(c.nodes) // more if one has timed out and waits again
	})
	c.setDatabaseLinks(linkHalfOpen)
	free()
	time.Sleep(staleThreshold)
	c.setDatabaseLinks(linkUp)
	began := time.Now()
	for i, n := range c.nodes {
		var sent task
		c.waitWithin(setupTimeout, "a message is accepted", func() (ok bool) {
			var err error
			sent, err = n.sendMessage(t.Context(), message{text: "hi", id: "m" + itoa(i), background: true})
			return err == nil
		})
		c.waitForState(n, "", sent.TaskID, "completed", requestDeadline)
	}
	reportf(t, "what was queued is done %v after answers come again", time.Since(began).Round(time.Millisecond))
}

// countGoroutines returns the number of goroutines of all processes.
func (c *cluster) countGoroutines() (n float64) {
	for _, node := range c.nodes {
		n += node.readMetric("go_goroutines")
	}
	return n
}

// sendMany sends many messages at once, more than there are connections to the database. It returns how many failed
// and how long the longest took. A failure other than 503 with Retry-After fails the test.
func (c *cluster) sendMany(many int) (failed int, longest time.Duration) {
	c.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			began := time.Now()
			_, err := c.nodes[i%len(c.nodes)].sendMessage(c.Context(), message{text: "hi"})
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, time.Since(began))
			if err == nil {
				return
			}
			failed++
			if r, ok := err.(*responseError); !ok || r.status != http.StatusServiceUnavailable || r.retryAfter == "" { //nolint:errorlint // as above
				c.Errorf("a request was answered %v", err)
			}
		})
	}
	all.Wait()
	return failed, longest
}

// TestF16Disk fills the disk of a SQLite file. Requests are answered with Retry-After, and succeed when there is
// space again; what was acknowledged is there. A second process on the file is refused.
func TestF16Disk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("stoa", dir, "tmpfs", 0, "size=6m"); err != nil {
		fmt.Fprintf(os.Stdout, "    %s: NOT TESTED: a small disk cannot be mounted here: %v\n", t.Name(), err)
		t.SkipNow()
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	c := startCluster(t, clusterOptions{sqlite: true, database: "sqlite://" + filepath.Join(dir, "stoa.db")})
	n := c.nodes[0]
	stored, err := n.sendMessage(t.Context(), message{text: "hello before"})
	c.requireNoError(err)

	t.Run("second process", func(t *testing.T) {
		p := stoatest.StartServer(t, n.program, t.TempDir(), "--database", c.database)
		select {
		case <-p.Ended():
		case <-time.After(time.Minute):
			t.Fatal("it starts all the same")
		}
		if !strings.Contains(p.Output(), "in use by another process") {
			t.Errorf("it says %s", p.Output())
		}
	})

	ballast := filepath.Join(dir, "ballast")
	fillDisk(t, ballast)
	var reported error
	sent := map[string]message{}
	for i := 0; reported == nil && i < 200; i++ {
		m := message{text: fmt.Sprintf("%d %s", i, strings.Repeat("x", 20_000)), id: "m" + itoa(i), background: true}
		var got task
		if got, reported = n.sendMessage(t.Context(), m); reported == nil {
			sent[got.TaskID] = m
		}
	}
	if statusOf(reported) != http.StatusServiceUnavailable {
		t.Errorf("a call on a full disk is answered %v", reported)
	}
	if reported == nil || !strings.Contains(reported.Error(), "disk") {
		t.Errorf("the error does not name the disk: %v", reported)
	}
	readyStatus := func() (int, string) {
		a, err := n.doRequest(t.Context(), http.MethodGet, "/ready", nil)
		c.requireNoError(err)
		return a.status, string(a.body)
	}
	c.waitWithin(6*time.Second, "the process is not ready because of the disk", func() bool {
		status, body := readyStatus()
		return status == http.StatusServiceUnavailable && strings.Contains(body, "disk")
	})
	c.requireNoError(os.Remove(ballast))
	took := c.waitWithin(10*time.Second, "calls are answered again", func() bool {
		_, err := n.sendMessage(t.Context(), message{text: "hi"})
		return err == nil
	})
	c.waitWithin(20*time.Second, "the process is ready again", func() bool {
		status, _ := readyStatus()
		return status == http.StatusOK
	})
	if lines := strings.Count(n.Output(), "the disk of the database is full: what writes fails"); lines != 1 {
		t.Errorf("the log names the full disk %d times, want once:\n%s", lines, n.filteredOutput())
	}
	reportf(t, "%d calls were acknowledged until the disk was full; answers %v after there was space", len(sent), took.Round(time.Millisecond))
	sent[stored.TaskID] = message{text: "hello before"}
	for id, m := range sent {
		if got := c.waitForState(n, "", id, "completed", rescueTimeout); got.lastText() != m.text {
			t.Errorf("task %s says %.40q, want %.40q", id, got.lastText(), m.text)
		}
	}
	n.killProcess()
	n.restartProcess()
	for id := range sent {
		c.waitForState(n, "", id, "completed", rescueTimeout)
	}
}

// fillDisk writes a file until there is almost no space left.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		err = f.Truncate(size - 400<<10)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestStopWithoutDatabase: a process that does not reach PostgreSQL any more stops without an error: it did what it could.
func TestStopWithoutDatabase(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 1})
	n := c.nodes[0]
	n.postgresProxy.setState(linkRefused)
	n.postgresProxy.cutConnections()
	if err := n.SignalAndWait(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}
