package ratelimit

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxInFlight bounds how many runs, or pipelines of runs, are under way: a connection that stalls holds nobody up but those
// who are on it.
const maxInFlight = 2

// coalescer runs [addScript] for many callers. Those who come at the same time, or while much is under way, go together, in one
// pipeline, and those of them who ask for the same in one run. Nobody waits for others to come. Each is counted by itself,
// and none fails another one.
type coalescer struct {
	client redis.UniversalClient

	mu       sync.Mutex
	inFlight int
	queued   []*scriptCall
}

// scriptCall is what one caller wants to be added. Its arguments are those of [addScript] but the last.
type scriptCall struct {
	keys     []string
	args     []any
	done     chan scriptReply
	deadline time.Time // it is waited for; zero = for as long as it takes
}

// scriptReply is what the script answers to one who goes alone.
type scriptReply struct {
	numbers []int64
	err     error
}

// runScript adds, and returns what the script answered. Where ctx ends first, it may have run.
func (g *coalescer) runScript(ctx context.Context, keys []string, args ...any) ([]int64, error) {
	until, _ := ctx.Deadline()
	a := &scriptCall{keys, args, make(chan scriptReply, 1), until}
	g.enqueue(a)
	select {
	case got := <-a.done:
		return got.numbers, got.err
	case <-ctx.Done():
		g.withdrawCall(a)
		return nil, ctx.Err()
	}
}

// enqueue queues a caller, and has what is queued sent unless much is under way.
func (g *coalescer) enqueue(a *scriptCall) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queued = append(g.queued, a)
	if g.inFlight < maxInFlight {
		g.inFlight++
		go g.sendQueued()
	}
}

// withdrawCall takes a run back that nobody waits for, unless it is under way.
func (g *coalescer) withdrawCall(a *scriptCall) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.queued, a); i >= 0 {
		g.queued = slices.Delete(g.queued, i, i+1)
	}
}

// sendQueued sends what is queued, group after group.
func (g *coalescer) sendQueued() {
	runtime.Gosched() // whoever is about to ask may still join
	for group := g.dequeueAll(); len(group) > 0; group = g.dequeueAll() {
		g.sendGroup(group)
	}
}

// dequeueAll removes what is queued. If that is nothing, nothing is under way any more.
func (g *coalescer) dequeueAll() []*scriptCall {
	g.mu.Lock()
	defer g.mu.Unlock()
	group := g.queued
	g.queued = nil
	if len(group) == 0 {
		g.inFlight--
	}
	return group
}

// groupContext returns a context that lasts as long as somebody waits for a group: what is sent later would be counted for nobody.
func groupContext(group []*scriptCall) (context.Context, context.CancelFunc) {
	var last time.Time
	for _, a := range group {
		if a.deadline.IsZero() {
			return context.WithCancel(context.Background())
		}
		if a.deadline.After(last) {
			last = a.deadline
		}
	}
	return context.WithDeadline(context.Background(), last)
}

// sendGroup runs a group: those who are alike in one run, several runs in one pipeline, and what Redis did not know the script
// for in a second one.
func (g *coalescer) sendGroup(group []*scriptCall) {
	ctx, cancel := groupContext(group)
	defer cancel()
	runs := groupIdentical(group)
	if len(runs) == 1 {
		distributeReplies(group, addScript.Run(ctx, g.client, group[0].keys, argsForCount(group[0], len(group))...))
		return
	}
	for i, run := range []func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd{addScript.EvalSha, addScript.Eval} {
		pipe := g.client.Pipeline()
		cmds := make([]*redis.Cmd, len(runs))
		for k, identical := range runs {
			cmds[k] = run(ctx, pipe, identical[0].keys, argsForCount(identical[0], len(identical))...)
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		var again [][]*scriptCall
		for k, identical := range runs {
			if i == 0 && redis.HasErrorPrefix(cmds[k].Err(), "NOSCRIPT") {
				again = append(again, identical)
				continue
			}
			distributeReplies(identical, cmds[k])
		}
		if runs = again; len(runs) == 0 {
			return
		}
	}
}

// groupIdentical divides a group into those who ask for the same.
func groupIdentical(group []*scriptCall) [][]*scriptCall {
	var runs [][]*scriptCall
	of := map[string][]int{} // by the first key
	for _, a := range group {
		first := a.keys[0]
		i := slices.IndexFunc(of[first], func(i int) bool {
			return slices.Equal(runs[i][0].keys, a.keys) && slices.Equal(runs[i][0].args, a.args)
		})
		if i < 0 {
			of[first] = append(of[first], len(runs))
			runs = append(runs, []*scriptCall{a})
			continue
		}
		i = of[first][i]
		runs[i] = append(runs[i], a)
	}
	return runs
}

// argsForCount returns the arguments of n who ask for the same as a.
func argsForCount(a *scriptCall, n int) []any { return append(slices.Clip(a.args), n) }

// distributeReplies gives each of those who asked for the same what it would have been answered alone, in their order.
func distributeReplies(identical []*scriptCall, cmd *redis.Cmd) {
	numbers, err := cmd.Int64Slice()
	for i, a := range identical {
		a.done <- scriptReply{replyShare(numbers, a.args, i), err}
	}
}

// replyShare is what of an answer to several who asked for the same is that of the one who came after n others.
func replyShare(numbers []int64, args []any, n int) []int64 {
	if len(numbers) <= 2 {
		return numbers
	}
	individual, fitting := slices.Clone(numbers), min(int64(n), numbers[1])
	individual[1] = min(1, numbers[1]-fitting)
	for i := range individual[2:] {
		individual[2+i] = max(0, individual[2+i]+fitting*args[2+3*i].(int64))
	}
	return individual
}
