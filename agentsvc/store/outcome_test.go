package store_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"stoa/agentsvc/store"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// cutProxy forwards a connection to PostgreSQL, and can cut it at a chosen moment.
type cutProxy struct {
	net.Listener
	server string
	wg     sync.WaitGroup

	mu    sync.Mutex
	armed string // "question" or "answer": the next one is lost, with its connection
}

func openThroughProxy(t *testing.T) (*cutProxy, *db.DB) {
	t.Helper()
	u, err := url.Parse(dbtest.NewPostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	c := &cutProxy{server: u.Host}
	if c.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	c.wg.Go(c.acceptConnections)
	u.Host = c.Addr().String()
	d, err := db.Open(t.Context(), u.String(), db.Options{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.Close()
		_ = c.Close()
		c.wg.Wait()
	})
	return c, d
}

func (c *cutProxy) acceptConnections() {
	for {
		here, err := c.Accept()
		if err != nil {
			return
		}
		there, err := net.Dial("tcp", c.server)
		if err != nil {
			_ = here.Close()
			continue
		}
		c.wg.Go(func() { c.forwardData("question", here, there) })
		c.wg.Go(func() { c.forwardData("answer", there, here) })
	}
}

func (c *cutProxy) forwardData(what string, from, to net.Conn) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || c.shouldCut(what) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil && !errors.Is(err, io.EOF) {
			return
		}
	}
}

func (c *cutProxy) armCut(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = what
}

func (c *cutProxy) shouldCut(what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.armed != what {
		return false
	}
	c.armed = ""
	return true
}

// TestOutcome: the connection is lost during a commit. What was committed is found and acknowledged, what was not is
// an error, and nothing happens twice.
func TestOutcome(t *testing.T) {
	t.Parallel()
	c, d := openThroughProxy(t)
	s := store.New(d, "acme")
	steps := func(cutAt string) (run store.Run, accepted, recorded error) {
		run = newRun("w1")
		c.armCut(cutAt)
		accepted = s.Tasks.Create(context.Background(), newTurn(run))
		if accepted != nil {
			c.armCut("")
			createTask(t, s, run)
		}
		// The statements are prepared on the new connection before it is cut.
		if err := s.Runs.WriteRecord(context.Background(), &run, store.Record{Events: sequenceEvents(run.Task, 3, messageEvent("x"))}); err != nil {
			t.Fatal(err)
		}
		c.armCut(cutAt)
		recorded = s.Runs.WriteRecord(context.Background(), &run, store.Record{Events: sequenceEvents(run.Task, 4, messageEvent("y"))})
		c.armCut("")
		return run, accepted, recorded
	}
	warm := createTask(t, s, newRun("w1"))
	if err := s.Runs.WriteRecord(t.Context(), &warm, store.Record{Events: sequenceEvents(warm.Task, 3, messageEvent("x"))}); err != nil {
		t.Fatal(err)
	}
	run, accepted, recorded := steps("answer")
	if accepted != nil || recorded != nil {
		t.Errorf("what took effect was reported as %v and %v", accepted, recorded)
	}
	checkGapless(t, loadLog(t, s, run.Task), 4)
	if run.Seq != 4 {
		t.Errorf("the worker stands at %d, want 4", run.Seq)
	}
	createTask(t, s, newRun("w1"))
	run, accepted, recorded = steps("question")
	for what, err := range map[string]error{"accept": accepted, "record": recorded} {
		if !errors.Is(err, db.ErrUnknownOutcome) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s that never arrived was reported as %v, want an unknown outcome", what, err)
		}
	}
	checkGapless(t, loadLog(t, s, run.Task), 3)
	if err := s.Runs.WriteRecord(t.Context(), &run, store.Record{Events: sequenceEvents(run.Task, 4, messageEvent("y"))}); err != nil {
		t.Errorf("the same step once more: %v", err)
	}
}
