package faults_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// loadGenerator is clients that send messages of all kinds repeatedly and record the history. A client whose message
// was not acknowledged sends it again with the same id.
type loadGenerator struct {
	cluster     *cluster
	pickClient  func(r *rand.Rand) *client // the client for the next request
	maxAttempts int                        // per message, before its outcome counts as unknown
	kinds       []string
	cancels     bool // some tasks are cancelled
	history     *history

	mu        sync.Mutex
	count     int
	errors    []error         // of requests, in order
	latencies []time.Duration // of acknowledged messages
	stop      context.CancelFunc
	workers   sync.WaitGroup
}

// messageKinds are the messages that a load sends: %s becomes a unique word.
var messageKinds = []string{"hello %s", "long %s", "long %s", "record %s", "repeat %s"}

// startClients starts workers clients.
func (l *loadGenerator) startClients(r *rand.Rand, workers int) {
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	if l.history == nil {
		l.history = &history{}
	}
	for range workers {
		dedicated := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
		l.workers.Go(func() {
			for ctx.Err() == nil {
				l.sendOne(dedicated)
			}
		})
	}
}

// stopClients stops the clients, each after its present message.
func (l *loadGenerator) stopClients() {
	l.stop()
	l.workers.Wait()
}

// sendOne sends one message in a randomly chosen way.
func (l *loadGenerator) sendOne(r *rand.Rand) {
	l.mu.Lock()
	l.count++
	n := l.count
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	m := message{text: fmt.Sprintf(l.kinds[r.IntN(len(l.kinds))], "w"+itoa(n)), id: "m" + itoa(n), background: r.IntN(3) == 0}
	streams := !m.background && r.IntN(2) == 0
	began := time.Now()
	id, last := "", int64(0)
	for try := 0; ; try++ {
		var err error
		if streams {
			err = l.streamMessage(ctx, l.pickClient(r), m, &id, &last)
		} else {
			var t task
			if t, err = l.pickClient(r).sendMessage(ctx, m); err == nil {
				id = l.cluster.checkSameTask(id, t.TaskID)
				l.decideOrCancel(ctx, r, m, t)
			}
		}
		if err == nil {
			break
		}
		if !errors.Is(err, errStreamCut) {
			l.addFailure(fmt.Errorf("%q at %s: %w", m.text, time.Now().Format("15:04:05.000"), err))
		}
		if try == l.maxAttempts || ctx.Err() != nil {
			break
		}
		sleepContext(ctx, time.Duration(50+r.IntN(200))*time.Millisecond)
	}
	l.mu.Lock()
	l.latencies = append(l.latencies, time.Since(began))
	l.mu.Unlock()
	l.history.addMessage(m, id)
}

// decideOrCancel decides waiting approvals and cancels some running tasks. Errors are ignored.
func (l *loadGenerator) decideOrCancel(ctx context.Context, r *rand.Rand, m message, t task) {
	switch {
	case t.Status.State == "input_required":
		_ = l.cluster.decideApprovals(ctx, l.pickClient(r), t)
	case l.cancels && m.background && r.IntN(5) == 0:
		sleepContext(ctx, time.Duration(r.IntN(100))*time.Millisecond)
		_ = l.pickClient(r).cancelTask(ctx, m.agent, t.TaskID)
	}
}

// streamMessage streams a message, or resumes an earlier stream of it. A duplicate event is an error.
func (l *loadGenerator) streamMessage(ctx context.Context, c *client, m message, id *string, last *int64) error {
	body := rpcCall("message:stream", m.rpcParams())
	if *id != "" {
		body = rpcCall("tasks/subscribe", map[string]any{"id": *id, "after": *last})
	}
	var wrong error
	err := c.streamEvents(ctx, m.agentPath(), body, func(ev event) bool {
		if ev.TaskID != "" {
			*id = l.cluster.checkSameTask(*id, ev.TaskID)
		}
		if ev.id > 0 && ev.id <= *last {
			wrong = fmt.Errorf("task %s: event %d comes again after %d", *id, ev.id, *last)
		}
		*last = max(*last, ev.id)
		return ev.Status.State != "input_required"
	})
	if wrong != nil {
		l.cluster.Error(wrong)
	}
	return err
}

// checkSameTask returns the task of a message, "" as long as it is not known, and checks that it has one only.
func (c *cluster) checkSameTask(before, now string) string {
	if before != "" && now != "" && before != now {
		c.Errorf("one message opened two tasks, %s and %s", before, now)
	}
	return cmp.Or(now, before)
}

func (l *loadGenerator) addFailure(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errors = append(l.errors, err)
}

// listFailures returns the errors of requests so far.
func (l *loadGenerator) listFailures() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.errors)
}

// latencyQuantile returns the quantile q of the latencies.
func (l *loadGenerator) latencyQuantile(q float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return durationQuantile(l.latencies, q)
}

func durationQuantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return d[min(len(d)-1, int(q*float64(len(d))))].Round(100 * time.Microsecond)
}

// randomClient returns a client of a random process of the cluster, dead or alive.
func (c *cluster) randomClient(r *rand.Rand) *client { return c.nodes[r.IntN(len(c.nodes))].client }
