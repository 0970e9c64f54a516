package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"stoa/bench/load"
	"stoa/bench/model"
	"stoa/bench/proc"
	"stoa/bench/stoa"
)

const (
	short, long = 100, 1000
	// pace is slow enough that tokens are forwarded one by one and fast enough for a bench.
	pace = time.Millisecond
	// parallel is how many streams run at once.
	parallel = 8
	// leastCPU is what a measurement must take so that the clock's step of 10 ms is a tenth of it at most.
	leastCPU = 100 * time.Millisecond
)

// streams has stoa forward the answers of the fixed-answer model server, short ones and long ones in turn.
func streams(ctx context.Context, l *lab, _ func(...string) bool, r *report) error {
	database, err := l.database(ctx)
	if err != nil {
		return err
	}
	vendor, base, err := l.helper(ctx, "model")
	if err != nil {
		return err
	}
	defer vendor.Stop()
	s, err := l.stoa(ctx, l.cluster.URL(database))
	if err != nil {
		return err
	}
	defer s.Stop()
	token, err := s.Create(ctx, stoa.Streaming("acme", base, pace, short, long))
	if err != nil {
		return err
	}
	if err := l.streamCost(ctx, s, token, r); err != nil {
		return err
	}
	if err := l.firstToken(ctx, s, token, base, r); err != nil {
		return err
	}
	return l.passage(ctx, s, token, r)
}

// stream is one streamed call for n tokens, good if the last event holds the whole answer.
func stream(s *stoa.Server, token string, n int) (load.Target, error) {
	word := strings.TrimSpace(model.Answer(1))
	return s.Stream(token, fmt.Sprintf("tokens-%d", n), text, word, strings.TrimSpace(model.Answer(n)))
}

func (l *lab) streamCost(ctx context.Context, s *stoa.Server, token string, r *report) error {
	used := map[int]series{}
	tokens := pick(l.quick, 16_000, 48_000) // forwarded in each measurement
	for round := range l.rounds + 1 {
		for _, n := range []int{short, long} {
			t, err := stream(s, token, n)
			if err != nil {
				return err
			}
			before, err := proc.CPU(s.PID())
			if err != nil {
				return err
			}
			got, err := load.Run(ctx, t, load.Options{Conns: parallel, Calls: tokens / n})
			if err != nil {
				return err
			}
			if got.Err != nil {
				return fmt.Errorf("%d of %d streams failed: %w", got.Errors, tokens/n, got.Err)
			}
			after, err := proc.CPU(s.PID())
			if err != nil {
				return err
			}
			if round == 0 { // warm-up
				continue
			}
			if after-before < leastCPU {
				return fmt.Errorf("%d streams of %d tokens took %v of processor time: too little for a clock of 10 ms", got.Calls, n, after-before)
			}
			each := (after - before) / time.Duration(got.Calls)
			progress("round %d of %d: %d tokens: %v of processor time a stream", round, l.rounds, n, each)
			used[n] = append(used[n], each.Seconds())
		}
	}
	micro := collect(used[long], func(sec float64) float64 { return sec * 1e6 / long })
	r.rows = append(r.rows,
		atMost("P11", fmt.Sprintf("server's processor time of a stream of %d tokens ÷ of %d (one token each %v)", long, short, pace), 11, used[long].over(used[short])),
		plain("P11", fmt.Sprintf("µs of the server's processor time per token of a stream of %d", long), micro.String()))
	return nil
}

// firstToken compares the time to the first token through stoa with that of the model server itself.
func (l *lab) firstToken(ctx context.Context, s *stoa.Server, token, base string, r *report) error {
	through, err := stream(s, token, short)
	if err != nil {
		return err
	}
	direct, err := model.Target(base, model.Name(short, pace))
	if err != nil {
		return err
	}
	var added series
	for range l.rounds {
		var p50 [2]time.Duration
		for i, t := range []load.Target{direct, through} {
			got, err := load.Run(ctx, t, load.Options{Conns: 1, Calls: pick(l.quick, 10, 20)})
			if err != nil {
				return err
			}
			if got.Err != nil {
				return fmt.Errorf("a stream failed: %w", got.Err)
			}
			p50[i] = got.First(50)
		}
		added = append(added, float64((p50[1]-p50[0]).Microseconds())/1000)
	}
	r.rows = append(r.rows, plain("P11", "ms that stoa adds to the time to the first token, c=1 (p50)", added.String()))
	return nil
}

// passage measures how long the first token is on its way from the model server through stoa to the client.
func (l *lab) passage(ctx context.Context, s *stoa.Server, token string, r *report) error {
	t, err := s.Stamped(token, text)
	if err != nil {
		return err
	}
	var p50, p99 series
	for range l.rounds {
		got, err := load.Run(ctx, t, load.Options{Conns: 1, Calls: pick(l.quick, 50, 100)})
		if err != nil {
			return err
		}
		if got.Err != nil {
			return fmt.Errorf("a stream failed: %w", got.Err)
		}
		p50 = append(p50, float64(got.First(50).Microseconds())/1000)
		p99 = append(p99, float64(got.First(99).Microseconds())/1000)
	}
	r.rows = append(r.rows,
		atMost("P11", "ms from the model's first token to the client's, c=1 (p50)", 2, p50),
		plain("P11", "the same (p99)", p99.String()))
	return nil
}
