package ratelimit

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxUnderWay bounds how many runs, or pipelines of runs, are under way: a connection that stalls holds nobody up but those
// who are on it.
const maxUnderWay = 2

// gather runs [addScript] for many callers. Those who come at the same time, or while much is under way, go together, in one
// pipeline, and those of them who ask for the same in one run. Nobody waits for others to come. Each is counted by itself,
// and none fails another one.
type gather struct {
	client redis.UniversalClient

	mu       sync.Mutex
	underWay int
	queued   []*ask
}

// ask is what one caller wants to be added. Its arguments are those of [addScript] but the last.
type ask struct {
	keys  []string
	args  []any
	done  chan answer
	until time.Time // it is waited for; zero = for as long as it takes
}

// answer is what the script answers to one who goes alone.
type answer struct {
	numbers []int64
	err     error
}

// run adds, and returns what the script answered. Where ctx ends first, it may have run.
func (g *gather) run(ctx context.Context, keys []string, args ...any) ([]int64, error) {
	until, _ := ctx.Deadline()
	a := &ask{keys, args, make(chan answer, 1), until}
	g.put(a)
	select {
	case got := <-a.done:
		return got.numbers, got.err
	case <-ctx.Done():
		g.withdraw(a)
		return nil, ctx.Err()
	}
}

// put queues a caller, and has what is queued sent unless much is under way.
func (g *gather) put(a *ask) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queued = append(g.queued, a)
	if g.underWay < maxUnderWay {
		g.underWay++
		go g.drain()
	}
}

// withdraw takes a run back that nobody waits for, unless it is under way.
func (g *gather) withdraw(a *ask) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.queued, a); i >= 0 {
		g.queued = slices.Delete(g.queued, i, i+1)
	}
}

// drain sends what is queued, group after group.
func (g *gather) drain() {
	runtime.Gosched() // whoever is about to ask may still join
	for group := g.take(); len(group) > 0; group = g.take() {
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

// send runs a group: those who are alike in one run, several runs in one pipeline, and what Redis did not know the script
// for in a second one.
func (g *gather) send(group []*ask) {
	ctx, cancel := waited(group)
	defer cancel()
	runs := alike(group)
	if len(runs) == 1 {
		tell(group, addScript.Run(ctx, g.client, group[0].keys, times(group[0], len(group))...))
		return
	}
	for i, run := range []func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd{addScript.EvalSha, addScript.Eval} {
		pipe := g.client.Pipeline()
		cmds := make([]*redis.Cmd, len(runs))
		for k, same := range runs {
			cmds[k] = run(ctx, pipe, same[0].keys, times(same[0], len(same))...)
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		var again [][]*ask
		for k, same := range runs {
			if i == 0 && redis.HasErrorPrefix(cmds[k].Err(), "NOSCRIPT") {
				again = append(again, same)
				continue
			}
			tell(same, cmds[k])
		}
		if runs = again; len(runs) == 0 {
			return
		}
	}
}

// alike divides a group into those who ask for the same.
func alike(group []*ask) [][]*ask {
	var runs [][]*ask
	of := map[string][]int{} // by the first key
	for _, a := range group {
		first := a.keys[0]
		i := slices.IndexFunc(of[first], func(i int) bool {
			return slices.Equal(runs[i][0].keys, a.keys) && slices.Equal(runs[i][0].args, a.args)
		})
		if i < 0 {
			of[first] = append(of[first], len(runs))
			runs = append(runs, []*ask{a})
			continue
		}
		i = of[first][i]
		runs[i] = append(runs[i], a)
	}
	return runs
}

// times returns the arguments of n who ask for the same as a.
func times(a *ask, n int) []any { return append(slices.Clip(a.args), n) }

// tell gives each of those who asked for the same what it would have been answered alone, in their order.
func tell(same []*ask, cmd *redis.Cmd) {
	numbers, err := cmd.Int64Slice()
	for i, a := range same {
		a.done <- answer{share(numbers, a.args, i), err}
	}
}

// share is what of an answer to several who asked for the same is that of the one who came after n others.
func share(numbers []int64, args []any, n int) []int64 {
	if len(numbers) <= 2 {
		return numbers
	}
	own, fit := slices.Clone(numbers), min(int64(n), numbers[1])
	own[1] = min(1, numbers[1]-fit)
	for i := range own[2:] {
		own[2+i] = max(0, own[2+i]+fit*args[2+3*i].(int64))
	}
	return own
}
