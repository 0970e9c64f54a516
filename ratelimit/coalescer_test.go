package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"stoa/agentsvc"
	"stoa/ratelimit"
)

// blockingHook delays single commands until it is opened, and records the size of each pipeline. Before the first
// pipeline it flushes Redis's scripts.
type blockingHook struct {
	blocked  chan struct{}
	released chan struct{}

	mu        sync.Mutex
	pipelines []int
}

func (h *blockingHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *blockingHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		select {
		case <-h.released:
		case h.blocked <- struct{}{}:
			<-h.released
		}
		return next(ctx, cmd)
	}
}

func (h *blockingHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "evalsha" && cmds[0].Name() != "eval" {
			return next(ctx, cmds) // commands of a new connection
		}
		h.mu.Lock()
		h.pipelines = append(h.pipelines, len(cmds))
		first := len(h.pipelines) == 1
		h.mu.Unlock()
		if first {
			if err := next(ctx, []redis.Cmder{redis.NewStatusCmd(ctx, "script", "flush")}); err != nil {
				return err
			}
		}
		return next(ctx, cmds)
	}
}

// TestRedisTogether queues callers of two apps: they are sent together, those of one app in one run, each is counted
// separately, and a caller that gave up before is not counted.
func TestRedisTogether(t *testing.T) {
	t.Parallel()
	client := newRedisClient(t)
	g := &blockingHook{blocked: make(chan struct{}), released: make(chan struct{})}
	client.AddHook(g)
	p := ratelimit.NewRedis(client)
	set := ratelimit.RuleSet{Backend: p, Rules: []ratelimit.Rule{callRule(ratelimit.PerApp, ratelimit.Day, 7)}}
	l, other := ratelimit.New(newTenantID(), set), ratelimit.New(newTenantID(), set)

	var in, out atomic.Int64
	var used [11]atomic.Int64 // how many callers saw each count
	var callers sync.WaitGroup
	call := func() {
		callers.Go(func() {
			g, err := l.ReserveCall(t.Context(), callerAna(""), 0)
			switch {
			case err == nil:
				in.Add(1)
			case errors.Is(err, agentsvc.CodeExhausted):
				out.Add(1)
			default:
				t.Error(err)
				return
			}
			used[g.States[0].Used].Add(1)
		})
	}
	for range 2 {
		call()
		<-g.blocked
	}
	for range 8 {
		call()
	}
	callers.Go(func() {
		if g, err := other.ReserveCall(t.Context(), callerAna(""), 0); err != nil || g.States[0].Used != 1 {
			t.Errorf("the other app's caller got %+v, %v", g, err)
		}
	})
	ctx, giveUp := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := l.ReserveCall(ctx, callerAna(""), 0)
		gone <- err
	}()
	queued := func(want int) {
		for p.QueuedCount() != want {
			time.Sleep(time.Millisecond)
		}
	}
	queued(10)
	giveUp()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up got %v", err)
	}
	queued(9)
	close(g.released)
	callers.Wait()
	if in.Load() != 7 || out.Load() != 3 {
		t.Errorf("%d were let in and %d not, want 7 and 3", in.Load(), out.Load())
	}
	for i := range used {
		want := int64(0)
		switch {
		case i == 7:
			want = 4 // the seventh call and the three refused ones
		case i > 0 && i < 7:
			want = 1
		}
		if got := used[i].Load(); got != want {
			t.Errorf("%d callers got the count %d, want %d", got, i, want)
		}
	}
	if g.pipelines[0] != 2 {
		t.Errorf("pipelines of %d commands, want 2 in the first: one for each app", g.pipelines)
	}
	st, err := l.ReserveCall(t.Context(), callerAna(""), 0)
	if !errors.Is(err, agentsvc.CodeExhausted) || st.States[0].Used != 7 {
		t.Errorf("afterwards: %v, %+v", err, st.States)
	}
}

// TestRedisIdenticalCalls checks that calls sent in one run get the answers, and leave the counts, of calls sent one
// after the other.
func TestRedisIdenticalCalls(t *testing.T) {
	t.Parallel()
	p := ratelimit.NewRedis(newRedisClient(t))
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Now()
		args := []any{now.Add(-time.Hour).UnixMilli(), now.Add(time.Hour).UnixMilli()}
		two := [2][]string{}
		for i := range rapid.IntRange(1, 3).Draw(rt, "counters") {
			amount := rapid.Int64Range(-4, 9).Draw(rt, "amount")
			var limit any = rapid.Int64Range(0, 40).Draw(rt, "limit")
			if rapid.Bool().Draw(rt, "unlimited") {
				limit = ""
			}
			args = append(args, amount, limit, now.Add(time.Hour).UnixMilli())
			first := rapid.Int64Range(0, 30).Draw(rt, "first")
			for k, caller := range []string{"together", "after"} {
				key := fmt.Sprintf("{%s}%s%d", newTenantID(), caller, i)
				two[k] = append(two[k], key)
				if _, err := p.RunTogether(1, []string{key}, args[0], args[1], first, "", args[4]); err != nil {
					rt.Fatal(err)
				}
			}
		}
		// The last call reads the resulting counts.
		n := rapid.IntRange(1, 8).Draw(rt, "callers")
		var replies [2][][]int64
		for k, each := range []int{n, 1} {
			for range n/each + 1 {
				got, err := p.RunTogether(each, two[k], args...)
				if err != nil {
					rt.Fatal(err)
				}
				replies[k] = append(replies[k], got...)
			}
			replies[k] = replies[k][:n+1]
			for _, numbers := range replies[k] {
				numbers[0] = 0 // the time differs
			}
		}
		if diff := cmp.Diff(replies[1], replies[0]); diff != "" {
			rt.Fatalf("%v for %d callers (-one after the other +together):\n%s", args, n, diff)
		}
	})
}

// silentHook lets no command reach Redis and fails them all at the end. It records the deadlines of commands that have
// one.
type silentHook struct {
	deadlines chan time.Time
	released  chan struct{}
}

var errNoReply = errors.New("no answer")

func (s silentHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s silentHook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if until, ok := ctx.Deadline(); ok {
			s.deadlines <- until
		}
		<-s.released
		cmd.SetErr(errNoReply)
		return errNoReply
	}
}

func (s silentHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestRedisLate checks that queued calls are sent only as long as their callers wait.
func TestRedisLate(t *testing.T) {
	t.Parallel()
	client := newRedisClient(t)
	s := silentHook{make(chan time.Time, 1), make(chan struct{})}
	client.AddHook(s)
	p := ratelimit.NewRedis(client)
	l := ratelimit.New(newTenantID(), ratelimit.RuleSet{Backend: p, Rules: []ratelimit.Rule{callRule(ratelimit.PerApp, ratelimit.Day, 7)}})
	late, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var callers sync.WaitGroup
	call := func(ctx context.Context, underWay, queued int) {
		callers.Go(func() {
			if _, err := l.ReserveCall(ctx, callerAna(""), 0); !errors.Is(err, errNoReply) {
				t.Errorf("a caller got %v, want %v", err, errNoReply)
			}
		})
		for p.InFlightCount() != underWay || p.QueuedCount() != queued {
			time.Sleep(time.Millisecond)
		}
	}
	call(t.Context(), 1, 0)
	call(t.Context(), 2, 0)
	call(late, 2, 1)
	close(s.released)
	if got, want := <-s.deadlines, contextDeadline(late); !got.Equal(want) {
		t.Errorf("who waited is asked for until %v, its caller waits until %v", got, want)
	}
	callers.Wait()
}

func contextDeadline(ctx context.Context) time.Time {
	until, _ := ctx.Deadline()
	return until
}
