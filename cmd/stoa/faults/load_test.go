package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// load is clients that send messages of all kinds, over and over, and keep a history of what they were told. A client
// whose message was not acknowledged sends it again, under the same id, as clients do.
type load struct {
	c       *cluster
	to      func(r *rand.Rand) *client // whom to ask next
	tries   int                        // how often a message is sent before it counts as unknown
	kinds   []string
	cancels bool // some messages are thought better of
	history *history

	mu     sync.Mutex
	count  int
	failed []error         // of requests, in the order they failed
	took   []time.Duration // of acknowledged messages
	stop   context.CancelFunc
	all    sync.WaitGroup
}

// kinds are the messages that a load sends: %s becomes a word of its own.
var kinds = []string{"hello %s", "long %s", "long %s", "record %s", "repeat %s"}

// begin starts workers clients.
func (l *load) begin(r *rand.Rand, workers int) {
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	if l.history == nil {
		l.history = &history{}
	}
	for range workers {
		own := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
		l.all.Go(func() {
			for ctx.Err() == nil {
				l.one(own)
			}
		})
	}
}

// end stops the clients, each after its last message.
func (l *load) end() {
	l.stop()
	l.all.Wait()
}

// one sends one message in one of the ways there are.
func (l *load) one(r *rand.Rand) {
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
			err = l.listen(ctx, l.to(r), m, &id, &last)
		} else {
			var t task
			if t, err = l.to(r).send(ctx, m); err == nil {
				id = l.same(id, t.TaskID)
				l.afterwards(ctx, r, m, t)
			}
		}
		if err == nil {
			break
		}
		if !errors.Is(err, errCut) {
			l.fail(fmt.Errorf("%q at %s: %w", m.text, time.Now().Format("15:04:05.000"), err))
		}
		if try == l.tries || ctx.Err() != nil {
			break
		}
		wait(ctx, time.Duration(50+r.IntN(200))*time.Millisecond)
	}
	l.mu.Lock()
	l.took = append(l.took, time.Since(began))
	l.mu.Unlock()
	l.history.add(m, id)
}

// afterwards decides what waits for a human, and cancels some of what is at work. Whether it is heard does not matter.
func (l *load) afterwards(ctx context.Context, r *rand.Rand, m message, t task) {
	switch {
	case t.Status.State == "input_required":
		_ = l.c.settle(ctx, l.to(r), t)
	case l.cancels && m.background && r.IntN(5) == 0:
		wait(ctx, time.Duration(r.IntN(100))*time.Millisecond)
		_ = l.to(r).cancel(ctx, m.agent, t.TaskID)
	}
}

// listen streams a message, or goes on where an earlier stream of it broke off. It fails where an event comes twice.
func (l *load) listen(ctx context.Context, c *client, m message, id *string, last *int64) error {
	body := call("message:stream", m.params())
	if *id != "" {
		body = call("tasks/subscribe", map[string]any{"id": *id, "after": *last})
	}
	var wrong error
	err := c.stream(ctx, m.path(), body, func(ev event) bool {
		if ev.TaskID != "" {
			*id = l.same(*id, ev.TaskID)
		}
		if ev.id > 0 && ev.id <= *last {
			wrong = fmt.Errorf("task %s: event %d comes again after %d", *id, ev.id, *last)
		}
		*last = max(*last, ev.id)
		return ev.Status.State != "input_required"
	})
	if wrong != nil {
		l.c.Error(wrong)
	}
	return err
}

// same wants a message to have no more than one task, and returns it.
func (l *load) same(before, now string) string {
	if before != "" && before != now {
		l.c.Errorf("one message opened two tasks, %s and %s", before, now)
	}
	return now
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = append(l.failed, err)
}

// failures returns the requests that failed, so far.
func (l *load) failures() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.failed)
}

// quantile returns how long the given share of the messages took at most.
func (l *load) quantile(q float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return quantile(l.took, q)
}

func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return d[min(len(d)-1, int(q*float64(len(d))))].Round(100 * time.Microsecond)
}

// anyOf has each request go to a process of the cluster that happens to be chosen, dead or alive.
func (c *cluster) anyOf(r *rand.Rand) *client { return c.nodes[r.IntN(len(c.nodes))].client }
