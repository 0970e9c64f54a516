// Package session decides how much of a long conversation a model gets to see. A strategy is a value with a method
// Open, which begins a turn and returns what cuts the turn's conversation down before each call of the model:
// [MessageWindow] keeps the last messages, [TokenWindow] the last tokens, [SummaryWindow] sums up what is old and keeps the rest.
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

// MessageWindow shows the last Size messages; a tool's result counts as one. More are shown where the last message and its
// tools' results alone are more.
type MessageWindow struct {
	MaxEntries int
}

// Open begins a turn.
func (b MessageWindow) Open() func(context.Context, []agentsvc.Entry) ([]agentsvc.Entry, []agentsvc.Usage, error) {
	one := func(int) int { return 1 }
	return func(_ context.Context, conversation []agentsvc.Entry) ([]agentsvc.Entry, []agentsvc.Usage, error) {
		return trimToLimit(conversation, b.MaxEntries, 0, one), nil, nil
	}
}

// TokenWindow shows as much of the end as has at most Budget tokens, and at least the last Recent messages.
type TokenWindow struct {
	Budget      int
	MinEntries  int
	CountTokens TokenCounter
}

// Open begins a turn.
func (w TokenWindow) Open() func(context.Context, []agentsvc.Entry) ([]agentsvc.Entry, []agentsvc.Usage, error) {
	c := tokenCounts{}
	return func(_ context.Context, conversation []agentsvc.Entry) ([]agentsvc.Entry, []agentsvc.Usage, error) {
		return trimToLimit(conversation, w.Budget, w.MinEntries, c.countFunc(w.CountTokens, conversation)), nil, nil
	}
}

// trimToLimit returns the longest end of talk whose entries cost at most limit, together with the user's message that is put
// before an end that begins otherwise. The last recent entries stay at any cost.
func trimToLimit(conversation []agentsvc.Entry, limit, recent int, cost func(i int) int) []agentsvc.Entry {
	splits := splitPoints(conversation)
	if len(splits) == 0 {
		return conversation
	}
	from, total, last := splits[len(splits)-1], 0, len(conversation)
	for _, p := range slices.Backward(splits) {
		for i := p; i < last; i++ {
			total += cost(i)
		}
		last = p
		opening := 0
		if o := questionIndex(conversation, p); o < p {
			opening = cost(o)
		}
		switch {
		case len(conversation)-p <= recent, total+opening <= limit:
			from = p
		case total > limit:
			return entriesFrom(conversation, from)
		}
	}
	return entriesFrom(conversation, from)
}

// entriesFrom returns talk from an entry on, with a user's message at its head.
func entriesFrom(conversation []agentsvc.Entry, from int) []agentsvc.Entry {
	if o := questionIndex(conversation, from); o < from {
		return append([]agentsvc.Entry{conversation[o]}, conversation[from:]...)
	}
	return conversation[from:]
}

// questionIndex returns the index of the user's message that the entry at from answers, or is; from where there is none.
func questionIndex(conversation []agentsvc.Entry, from int) int {
	for i := from; i >= 0; i-- {
		if i < len(conversation) && conversation[i].Message != nil && conversation[i].Message.Role == agentsvc.RoleUser {
			return i
		}
	}
	return from
}

// splitPoints returns where talk may be cut: the indices at which its pieces begin. A piece is a message, or one that calls
// tools with everything up to its last result.
func splitPoints(conversation []agentsvc.Entry) (begins []int) {
	requested := map[agentsvc.CallID]int{} // where the call was made
	for i, e := range conversation {
		if e.Message != nil {
			begins = append(begins, i)
			for _, c := range e.Message.ToolCalls {
				requested[c.ID] = i
			}
			continue
		}
		caller, ok := requested[e.Result.Call]
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
