package ratelimit_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stoa/ratelimit"
)

// gate holds single commands back until it is open, and notes how many commands each pipeline has. Before the first one it
// makes Redis forget its scripts.
type gate struct {
	held chan struct{}
	open chan struct{}

	mu        sync.Mutex
	pipelines []int
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		select {
		case <-g.open:
		case g.held <- struct{}{}:
			<-g.open
		}
		return next(ctx, cmd)
	}
}

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "evalsha" && cmds[0].Name() != "eval" {
			return next(ctx, cmds) // of a new connection
		}
		g.mu.Lock()
		g.pipelines = append(g.pipelines, len(cmds))
		first := len(g.pipelines) == 1
		g.mu.Unlock()
		if first {
			if err := next(ctx, []redis.Cmder{redis.NewStatusCmd(ctx, "script", "flush")}); err != nil {
				return err
			}
		}
		return next(ctx, cmds)
	}
}

// TestRedisTogether has callers wait behind others: they go together, each is counted by itself, and one who gives up
// before it is not counted at all.
func TestRedisTogether(t *testing.T) {
	t.Parallel()
	client := redisClient(t)
	g := &gate{held: make(chan struct{}), open: make(chan struct{})}
	client.AddHook(g)
	p := ratelimit.NewRedis(client)
	l := ratelimit.New(tenant(), ratelimit.Set{Place: p, Rules: []ratelimit.Rule{calls(ratelimit.PerApp, ratelimit.Day, 7)}})

	var in, out atomic.Int64
	var callers sync.WaitGroup
	call := func() {
		callers.Go(func() {
			switch _, err := l.Take(t.Context(), ana(""), 0); {
			case err == nil:
				in.Add(1)
			case errors.Is(err, ratelimit.ErrExhausted):
				out.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	for range 2 {
		call()
		<-g.held
	}
	for range 8 {
		call()
	}
	ctx, giveUp := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := l.Take(ctx, ana(""), 0)
		gone <- err
	}()
	queued := func(want int) {
		for p.Queued() != want {
			time.Sleep(time.Millisecond)
		}
	}
	queued(9)
	giveUp()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up got %v", err)
	}
	queued(8)
	close(g.open)
	callers.Wait()
	if in.Load() != 7 || out.Load() != 3 {
		t.Errorf("%d were let in and %d not, want 7 and 3", in.Load(), out.Load())
	}
	if g.pipelines[0] != 8 {
		t.Errorf("pipelines of %d commands, want 8 in the first", g.pipelines)
	}
	st, err := l.Take(t.Context(), ana(""), 0)
	if !errors.Is(err, ratelimit.ErrExhausted) || st.States[0].Used != 7 {
		t.Errorf("afterwards: %v, %+v", err, st.States)
	}
}

// silence lets no command get to Redis, and notes until when each pipeline waits.
type silence struct{ until chan time.Time }

func (s silence) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s silence) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, _ redis.Cmder) error { <-ctx.Done(); return ctx.Err() }
}

func (s silence) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		until, _ := ctx.Deadline()
		s.until <- until
		<-ctx.Done()
		for _, cmd := range cmds {
			cmd.SetErr(ctx.Err())
		}
		return ctx.Err()
	}
}

// TestRedisLate: what waits behind others that get no answer is sent for as long as its callers wait, and no longer.
func TestRedisLate(t *testing.T) {
	t.Parallel()
	client := redisClient(t)
	s := silence{make(chan time.Time, 1)}
	client.AddHook(s)
	p := ratelimit.NewRedis(client)
	l := ratelimit.New(tenant(), ratelimit.Set{Place: p, Rules: []ratelimit.Rule{calls(ratelimit.PerApp, ratelimit.Day, 7)}})
	first, end := context.WithCancel(t.Context())
	late, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var callers sync.WaitGroup
	call := func(ctx context.Context, want error) {
		callers.Go(func() {
			if _, err := l.Take(ctx, ana(""), 0); !errors.Is(err, want) {
				t.Errorf("a caller got %v, want %v", err, want)
			}
		})
	}
	call(first, context.Canceled)
	call(first, context.Canceled)
	for p.UnderWay() != 2 {
		time.Sleep(time.Millisecond)
	}
	call(late, context.DeadlineExceeded)
	for p.Queued() != 1 {
		time.Sleep(time.Millisecond)
	}
	end()
	if got, want := <-s.until, deadlineOf(late); !got.Equal(want) {
		t.Errorf("the pipeline waits until %v, its caller until %v", got, want)
	}
	callers.Wait()
}

func deadlineOf(ctx context.Context) time.Time {
	until, _ := ctx.Deadline()
	return until
}
