package llm

import (
	"context"
	"errors"
	"iter"

	"stoa/agentsvc"
)

// WithFallback returns a provider that calls p and, where p fails with an [*Error] before its first chunk, the others
// in order, as far as the [AttemptLimit] of the call reaches. An answer that has begun is never requested from another
// model. If all fail, the error is p's.
func WithFallback(p Provider, others ...Provider) Provider {
	if len(others) == 0 {
		return p
	}
	return fallbackProvider{p, others}
}

// fallbackProvider implements WithFallback. It has no state between calls.
type fallbackProvider struct {
	first  Provider
	others []Provider
}

// Stream implements [Provider].
func (f fallbackProvider) Stream(ctx context.Context, req Request) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		if req.Attempts == nil {
			req.Attempts = newAttemptLimit()
		}
		req.Attempts.startModel(len(f.others))
		first := forwardAnswer(f.first.Stream(ctx, req), yield)
		if first == nil {
			return
		}
		// Only failures of the model's side: an invalid request (e.g. a file type) is the caller's to change, and a
		// local error (context, capacity, budget) would meet the next model too.
		if e := (*Error)(nil); errors.As(first, &e) {
			forward := changeUsage(yield, func(u *agentsvc.Usage) { u.Fallback = true })
			for i, p := range f.others {
				if ctx.Err() != nil {
					first = ctx.Err()
					break
				}
				if !req.Attempts.startModel(len(f.others) - i - 1) {
					break
				}
				if forwardAnswer(p.Stream(ctx, req), forward) == nil {
					return
				}
			}
		}
		yield(Chunk{}, first)
	}
}
