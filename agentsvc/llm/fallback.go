package llm

import (
	"context"
	"errors"
	"iter"
)

// WithFallback returns a provider that asks p and, where p answers an [*Error] before its first chunk, the others in their
// order. What has begun to answer is never asked again. Where none answers, p's error tells why.
func WithFallback(p Provider, others ...Provider) Provider {
	if len(others) == 0 {
		return p
	}
	return fallbackProvider{p, others}
}

type fallbackProvider struct {
	first  Provider
	others []Provider
}

func (f fallbackProvider) Stream(ctx context.Context, req Request) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		first := forwardAnswer(f.first.Stream(ctx, req), yield)
		if first == nil {
			return
		}
		// A file that the model does not take is the caller's to change: no other model is asked then.
		if e := (*Error)(nil); errors.As(first, &e) {
			for _, p := range f.others {
				if ctx.Err() != nil {
					first = ctx.Err()
					break
				}
				if forwardAnswer(p.Stream(ctx, req), yield) == nil {
					return
				}
			}
		}
		yield(Chunk{}, first)
	}
}
