// Package session decides how much of a long conversation a model gets to see. A strategy is a value with a method
// Open, which begins a turn and returns what cuts the turn's conversation down before each call of the model:
// [Buffer] keeps the last messages, [Tokens] the last tokens, [Summary] sums up what is old and keeps the rest.
//
// Three things hold whatever the strategy. A message that calls tools and their results stay together or go together.
// What is left begins with a user's message, and the one that the turn answers is always there. And nothing but what
// is shown changes: the session itself keeps every word.
package session

import (
	"context"
	"slices"

	"stoa/agentsvc"
)

// Buffer shows the last Size messages; a tool's result counts as one. More are shown where the last message and its
// tools' results alone are more.
type Buffer struct {
	Size int
}

// Open begins a turn.
func (b Buffer) Open() func(context.Context, []agentsvc.Entry) ([]agentsvc.Entry, []agentsvc.Usage, error) {
	one := func(int) int { return 1 }
	return func(_ context.Context, talk []agentsvc.Entry) ([]agentsvc.Entry, []agentsvc.Usage, error) {
		return end(talk, b.Size, 0, one), nil, nil
	}
}

// Tokens shows as much of the end as has at most Budget tokens, and at least the last Recent messages.
type Tokens struct {
	Budget int
	Recent int
	Count  Counter
}

// Open begins a turn.
func (w Tokens) Open() func(context.Context, []agentsvc.Entry) ([]agentsvc.Entry, []agentsvc.Usage, error) {
	c := costs{}
	return func(_ context.Context, talk []agentsvc.Entry) ([]agentsvc.Entry, []agentsvc.Usage, error) {
		return end(talk, w.Budget, w.Recent, c.of(w.Count, talk)), nil, nil
	}
}

// end returns the longest end of talk whose entries cost at most limit, together with the user's message that is put
// before an end that begins otherwise. The last recent entries stay at any cost.
func end(talk []agentsvc.Entry, limit, recent int, cost func(i int) int) []agentsvc.Entry {
	pieces := cut(talk)
	if len(pieces) == 0 {
		return talk
	}
	from, total, last := pieces[len(pieces)-1], 0, len(talk)
	for _, p := range slices.Backward(pieces) {
		for i := p; i < last; i++ {
			total += cost(i)
		}
		last = p
		opening := 0
		if o := opener(talk, p); o < p {
			opening = cost(o)
		}
		switch {
		case len(talk)-p <= recent, total+opening <= limit:
			from = p
		case total > limit:
			return open(talk, from)
		}
	}
	return open(talk, from)
}

// open returns talk from an entry on, with a user's message at its head.
func open(talk []agentsvc.Entry, from int) []agentsvc.Entry {
	if o := opener(talk, from); o < from {
		return append([]agentsvc.Entry{talk[o]}, talk[from:]...)
	}
	return talk[from:]
}

// opener returns the index of the user's message that the entry at from answers, or is; from where there is none.
func opener(talk []agentsvc.Entry, from int) int {
	for i := from; i >= 0; i-- {
		if i < len(talk) && talk[i].Message != nil && talk[i].Message.Role == agentsvc.RoleUser {
			return i
		}
	}
	return from
}

// cut returns where talk may be cut: the indices at which its pieces begin. A piece is a message, or one that calls
// tools with everything up to its last result.
func cut(talk []agentsvc.Entry) (begins []int) {
	asked := map[agentsvc.CallID]int{} // where the call was made
	for i, e := range talk {
		if e.Message != nil {
			begins = append(begins, i)
			for _, c := range e.Message.ToolCalls {
				asked[c.ID] = i
			}
			continue
		}
		caller, ok := asked[e.Result.Call]
		if !ok {
			caller = i
		}
		for len(begins) > 0 && begins[len(begins)-1] > caller {
			begins = begins[:len(begins)-1]
		}
		if len(begins) == 0 {
			begins = []int{i}
		}
	}
	return begins
}
