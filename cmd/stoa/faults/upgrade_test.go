//go:build faults

package faults_test

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stoa/tenancy/db/dbtest"
)

// upgradeHosts are the addresses of the three processes behind a balancer.
var upgradeHosts = []string{"127.0.0.21", "127.0.0.22", "127.0.0.23"}

// TestF19Upgrade replaces three processes of the previous version behind a balancer by this one, and then by the previous
// one again, one after the other, while clients send messages and follow long streams. The first process of this version
// migrates the schema while the others serve; those of the previous version continue on the new schema. No request fails,
// no task is lost, and each stream is resumed with Last-Event-ID wherever it ends.
func TestF19Upgrade(t *testing.T) {
	t.Parallel()
	old, revision := previousBuild(t)
	plainBuild.programPath(t) // no load while it is built
	for name, kind := range balancerKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testUpgrade(t, kind, old, revision)
		})
	}
}

func testUpgrade(t *testing.T, kind balancerKind, old *build, revision string) {
	grpcPort := itoa(freePort(t))
	c := startCluster(t, clusterOptions{
		nodes: 3, hosts: upgradeHosts, build: old, database: dbtest.NewEmptyPostgresURL(t),
		// A drain does not wait for the end of a long stream.
		args: []string{"--grpc-port", grpcPort, "--trusted-proxies", "127.0.0.1/32", "--shutdown-timeout", "3s"},
	})
	_, httpPort, err := net.SplitHostPort(c.nodes[0].baseURL[len("http://"):])
	c.requireNoError(err)
	b, addr := startTestedBalancer(t, kind, upgradeHosts, httpPort, grpcPort)
	front := &client{baseURL: "https://" + addr, token: c.token, http: &http.Client{Transport: newBalancerTransport(t, b.pool)}}
	c.waitWithin(setupTimeout, "the balancer finds the processes", func() bool {
		_, err := front.sendMessage(t.Context(), message{text: "hi"})
		return err == nil
	})
	before, r, messages := c.readSchemaVersion(), newRand(t), 0
	for round := range readCount(t, "STOA_FAULTS_UPGRADES", 2, 2) {
		for _, to := range []*build{plainBuild, old} {
			l := &loadGenerator{cluster: c, pickClient: func(*mathrand.Rand) *client { return front }, maxAttempts: 3, kinds: append(messageKinds, "slow %s", "careful %s")}
			l.count = messages
			l.startClients(r, 4)
			s := &streamFollower{cluster: c, front: front}
			s.startStreams(r, 3, fmt.Sprintf("s%d-%s", round, to.name))
			for i, n := range c.nodes {
				b.replaceProcess(c, n, upgradeHosts[i], to.programPath(t))
				// The balancer asks twice a second.
				sleepContext(context.Background(), 1500*time.Millisecond)
				if i == 0 {
					checkBothVersions(c, to)
				}
			}
			s.stopStreams()
			l.stopClients()
			failed := append(l.listFailures(), s.failures...)
			direction := "from " + revision + " to this version"
			if to == old {
				direction = "back"
			}
			reportf(t, "%s, %s: %d messages and %d long streams, %d requests failed; streams resumed %d times, %d of them because a process stopped; schema at %d, before at %d",
				kind.program, direction, l.count-messages, s.count.Load(), len(failed), s.resumed.Load(), s.broken.Load(), c.readSchemaVersion(), before)
			for _, err := range failed[:min(len(failed), 20)] {
				t.Errorf("a request failed: %v", err)
			}
			if l.count-messages < 10 || s.resumed.Load() == 0 {
				t.Errorf("only %d messages were sent and streams resumed %d times", l.count-messages, s.resumed.Load())
			}
			c.checkHistory(l.history, c.nodes[0], time.Minute)
			messages = l.count
		}
	}
}

// checkBothVersions requires, when the first process has been replaced by a program, that the schema is this version's and
// that each process answers on it, those of the other version too.
func checkBothVersions(c *cluster, first *build) {
	c.Helper()
	files, err := filepath.Glob("../../../migrations/postgres/*.up.sql")
	if err != nil || len(files) == 0 {
		c.Fatalf("there are no migrations: %v", err)
	}
	var want int64
	_, err = fmt.Sscanf(filepath.Base(files[len(files)-1]), "%d_", &want)
	c.requireNoError(err)
	if got := c.readSchemaVersion(); got != want {
		c.Errorf("after the first process of %s has started the schema is at %d, want %d", first.name, got, want)
	}
	for _, n := range c.nodes {
		if got, err := n.sendMessage(c.Context(), message{text: "hello both"}); err != nil || got.Status.State != "completed" {
			c.Errorf("%s answers %q: %v", n.program, got.lastText(), err)
		}
	}
}

// readSchemaVersion returns the number of the last migration that has run.
func (c *cluster) readSchemaVersion() int64 {
	c.Helper()
	return c.querySQL("SELECT version FROM stoa_migrations")[0][0].(int64)
}

// streamFollower is clients that follow long streams, each of which they leave once and resume, and resume wherever it
// ends early.
type streamFollower struct {
	cluster *cluster
	front   *client

	count, resumed, broken atomic.Int64
	stop                   context.CancelFunc
	workers                sync.WaitGroup
	mu                     sync.Mutex
	failures               []error
}

// startStreams starts workers clients. Every message has a word that begins with prefix.
func (s *streamFollower) startStreams(r *mathrand.Rand, workers int, prefix string) {
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	for i := range workers {
		dedicated := mathrand.New(mathrand.NewPCG(r.Uint64(), r.Uint64()))
		s.workers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := s.followOne(dedicated, fmt.Sprintf("%s-%d-%d", prefix, i, n)); err != nil {
					s.mu.Lock()
					s.failures = append(s.failures, err)
					s.mu.Unlock()
				}
			}
		})
	}
}

// stopStreams waits for the end of each client's present stream.
func (s *streamFollower) stopStreams() {
	s.stop()
	s.workers.Wait()
}

// followOne sends a message whose answer takes some seconds and follows its task to the end. What arrived in all must be
// the log.
func (s *streamFollower) followOne(r *mathrand.Rand, word string) error {
	s.count.Add(1)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	m := message{text: "journey " + word, id: word}
	body, header := rpcCall("message:stream", m.rpcParams()), []string(nil)
	var received []event
	for id, last, leaveAfter := "", int64(0), 1+r.IntN(2); ; {
		err := s.front.streamEvents(ctx, m.agentPath(), body, func(ev event) bool {
			id = s.cluster.checkSameTask(id, ev.TaskID)
			if ev.id == 0 {
				return true
			}
			if ev.id <= last {
				s.cluster.Errorf("task %s: event %d comes again after %d", id, ev.id, last)
			}
			received, last = append(received, ev), ev.id
			leaveAfter--
			return leaveAfter != 0
		}, header...)
		if err != nil && !errors.Is(err, errStreamCut) {
			return fmt.Errorf("%q at %s: %w", m.text, time.Now().Format("15:04:05.000"), err)
		}
		if len(received) > 0 && received[len(received)-1].isTerminal() {
			break
		}
		if err != nil {
			s.broken.Add(1)
		}
		if id == "" {
			continue // nothing has arrived: the message is sent again, with its id
		}
		s.resumed.Add(1)
		body, header = rpcCall("tasks/subscribe", map[string]any{"id": id}), []string{"Last-Event-ID", fmt.Sprint(last)}
	}
	end := received[len(received)-1]
	if end.Status.State != "completed" || !strings.Contains(end.lastText(), word) {
		s.cluster.Errorf("task %s of %q ended %s with %q", end.TaskID, m.text, end.Status.State, end.lastText())
	}
	log, err := s.front.readLog(ctx, "", end.TaskID)
	if got, want := outlineLog(received), outlineLog(log); err == nil && got != want {
		s.cluster.Errorf("%s: the streams sent\n%s\nand the log is\n%s", m.text, got, want)
	}
	return err
}
