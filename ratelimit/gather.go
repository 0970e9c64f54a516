package ratelimit

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxUnderWay bounds how many runs, or pipelines of runs, are under way: a connection that stalls holds nobody up but those
// who are on it.
const maxUnderWay = 2

// gather runs a script for many callers. One who finds little under way goes alone and at once; those who come while there
// is much go together, in one pipeline. Each run is a step of its own, which no other one fails.
type gather struct {
	client redis.UniversalClient
	script *redis.Script

	mu       sync.Mutex
	underWay int
	queued   []*ask
}

// ask is one run of the script.
type ask struct {
	keys  []string
	args  []any
	done  chan *redis.Cmd
	until time.Time // it is waited for; zero = for as long as it takes
}

// run runs the script and returns what it answered. Where ctx ends first, it may have run.
func (g *gather) run(ctx context.Context, keys []string, args ...any) *redis.Cmd {
	until, _ := ctx.Deadline()
	a := g.join(keys, args, until)
	if a == nil {
		defer g.next()
		return g.script.Run(ctx, g.client, keys, args...)
	}
	select {
	case cmd := <-a.done:
		return cmd
	case <-ctx.Done():
		g.withdraw(a)
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(ctx.Err())
		return cmd
	}
}

// join queues a run behind what is under way. It returns nil where that is little: then the caller runs its own.
func (g *gather) join(keys []string, args []any, until time.Time) *ask {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.underWay < maxUnderWay {
		g.underWay++
		return nil
	}
	a := &ask{keys, args, make(chan *redis.Cmd, 1), until}
	g.queued = append(g.queued, a)
	return a
}

// withdraw takes a run back that nobody waits for, unless it is under way.
func (g *gather) withdraw(a *ask) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.queued, a); i >= 0 {
		g.queued = slices.Delete(g.queued, i, i+1)
	}
}

// next ends what was under way, and begins with what is queued.
func (g *gather) next() {
	if group := g.take(); len(group) > 0 {
		go g.drain(group)
	}
}

// drain sends a group, and then what is queued meanwhile.
func (g *gather) drain(group []*ask) {
	for ; len(group) > 0; group = g.take() {
		g.send(group)
	}
}

// take removes what is queued. If that is nothing, nothing is under way any more.
func (g *gather) take() []*ask {
	g.mu.Lock()
	defer g.mu.Unlock()
	group := g.queued
	g.queued = nil
	if len(group) == 0 {
		g.underWay--
	}
	return group
}

// waited returns a context that lasts as long as somebody waits for a group: what is sent later would be counted for nobody.
func waited(group []*ask) (context.Context, context.CancelFunc) {
	var last time.Time
	for _, a := range group {
		if a.until.IsZero() {
			return context.WithCancel(context.Background())
		}
		if a.until.After(last) {
			last = a.until
		}
	}
	return context.WithDeadline(context.Background(), last)
}

// send runs a group in one pipeline, and what Redis did not know the script for in a second one.
func (g *gather) send(group []*ask) {
	ctx, cancel := waited(group)
	defer cancel()
	for i, run := range []func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd{g.script.EvalSha, g.script.Eval} {
		pipe := g.client.Pipeline()
		cmds := make([]*redis.Cmd, len(group))
		for k, a := range group {
			cmds[k] = run(ctx, pipe, a.keys, a.args...)
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		var again []*ask
		for k, a := range group {
			if i == 0 && redis.HasErrorPrefix(cmds[k].Err(), "NOSCRIPT") {
				again = append(again, a)
				continue
			}
			a.done <- cmds[k]
		}
		if group = again; len(group) == 0 {
			return
		}
	}
}
