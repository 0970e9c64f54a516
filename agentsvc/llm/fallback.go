package llm

import (
	"context"
	"errors"
	"iter"
)

// Fallback returns a provider that asks p and, where p answers an [*Error] before its first chunk, the others in their
// order. What has begun to answer is never asked again. Where none answers, p's error tells why.
func Fallback(p Provider, others ...Provider) Provider {
	if len(others) == 0 {
		return p
	}
	return fallback{p, others}
}

type fallback struct {
	first  Provider
	others []Provider
}

func (f fallback) Stream(ctx context.Context, req Request) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		first := once(f.first.Stream(ctx, req), yield)
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
				if once(p.Stream(ctx, req), yield) == nil {
					return
				}
			}
		}
		yield(Chunk{}, first)
	}
}
