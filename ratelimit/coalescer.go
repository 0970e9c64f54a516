package ratelimit

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxInFlight is how many scripts or pipelines may be under way at a time, so that a stalled connection delays only the
// calls on it.
const maxInFlight = 2

// coalescer runs addScript for many callers. Calls that arrive at the same time, or while maxInFlight requests are
// under way, are sent together in one pipeline; those with the same keys and arguments in one run of the script, which
// counts as many of them as the limit allows. A call never waits for others to arrive. Each gets its own result.
// docs/performance.md has the gain.
type coalescer struct {
	client redis.UniversalClient

	// mu guards the fields below.
	mu sync.Mutex
	// inFlight is the number of goroutines in sendQueued.
	inFlight int
	// queued are the calls that no goroutine has taken yet.
	queued []*scriptCall
}

// scriptCall is one call. keys and args are those of addScript, without the last argument.
type scriptCall struct {
	keys []string
	args []any
	done chan scriptReply
	// deadline is the end of the caller's wait; zero if it has none.
	deadline time.Time
}

// scriptReply is the answer of the script to a single call, or the error.
type scriptReply struct {
	numbers []int64
	err     error
}

// runScript runs addScript once and returns its answer. If ctx ends first, the script may or may not have run.
func (c *coalescer) runScript(ctx context.Context, keys []string, args ...any) ([]int64, error) {
	until, _ := ctx.Deadline()
	a := &scriptCall{keys, args, make(chan scriptReply, 1), until}
	c.enqueue(a)
	select {
	case got := <-a.done:
		return got.numbers, got.err
	case <-ctx.Done():
		c.withdrawCall(a)
		return nil, ctx.Err()
	}
}

// enqueue queues a call and starts a goroutine to send it if fewer than maxInFlight run.
func (c *coalescer) enqueue(a *scriptCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queued = append(c.queued, a)
	if c.inFlight < maxInFlight {
		c.inFlight++
		go c.sendQueued()
	}
}

// withdrawCall removes a call from the queue, unless it has been taken.
func (c *coalescer) withdrawCall(a *scriptCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.queued, a); i >= 0 {
		c.queued = slices.Delete(c.queued, i, i+1)
	}
}

// sendQueued sends what is queued, group after group, until nothing is left.
func (c *coalescer) sendQueued() {
	runtime.Gosched() // lets goroutines that are about to call join the group
	for group := c.dequeueAll(); len(group) > 0; group = c.dequeueAll() {
		c.sendGroup(group)
	}
}

// dequeueAll removes and returns all queued calls. If there are none the calling goroutine is no longer counted and
// must end.
func (c *coalescer) dequeueAll() []*scriptCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	group := c.queued
	c.queued = nil
	if len(group) == 0 {
		c.inFlight--
	}
	return group
}

// groupContext returns a context that ends with the last deadline of the group: a script sent later would count a call
// whose caller has gone.
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

// sendGroup sends a group: identical calls in one run, several runs in one pipeline, and those whose script Redis did
// not know (NOSCRIPT) in a second pipeline with the script's text.
func (c *coalescer) sendGroup(group []*scriptCall) {
	ctx, cancel := groupContext(group)
	defer cancel()
	runs := groupIdentical(group)
	if len(runs) == 1 {
		distributeReplies(group, addScript.Run(ctx, c.client, group[0].keys, argsForCount(group[0], len(group))...))
		return
	}
	for i, run := range []func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd{addScript.EvalSha, addScript.Eval} {
		pipe := c.client.Pipeline()
		cmds := make([]*redis.Cmd, len(runs))
		for k, identical := range runs {
			cmds[k] = run(ctx, pipe, identical[0].keys, argsForCount(identical[0], len(identical))...)
		}
		_, _ = pipe.Exec(ctx) // the error of each command is checked below
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

// groupIdentical divides a group into lists of calls with equal keys and arguments.
func groupIdentical(group []*scriptCall) [][]*scriptCall {
	var runs [][]*scriptCall
	of := map[string][]int{} // indexes in runs by the first key
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

// argsForCount returns the arguments of one run for n calls identical to a. Clip forces append to copy, since args is
// shared.
func argsForCount(a *scriptCall, n int) []any { return append(slices.Clip(a.args), n) }

// distributeReplies sends each of the identical calls the answer that it would have got alone, in their order.
func distributeReplies(identical []*scriptCall, cmd *redis.Cmd) {
	numbers, err := cmd.Int64Slice()
	for i, a := range identical {
		a.done <- scriptReply{replyShare(numbers, a.args, i), err}
	}
}

// replyShare returns the answer for the call that came after n others, from the answer for all: numbers are the time,
// how many calls were counted, and the counts before. The first calls were counted, with counts that grow by the
// amounts, the rest refused.
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
