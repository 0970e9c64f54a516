// Package session decides which part of a long conversation a model receives. A strategy is a value with a method Open,
// which begins a turn and returns a function. The agent calls that function before each model call of the turn, and
// sends what it returns. [MessageWindow] keeps the last messages, [TokenWindow] the last tokens, [SummaryWindow]
// replaces the older part by a summary.
//
// Three rules hold for all strategies:
//
//  1. A message with tool calls and the results of these calls stay together or are removed together: vendors reject
//     one without the other.
//  2. The result begins with a user's message, and always contains the message that the turn answers.
//  3. Only what the model receives is shortened. The stored session keeps every message.
package session

import (
	"context"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/pattern"
)

// MessageWindow keeps the last MaxEntries entries; a tool result counts as one. It keeps more if the last message and
// its tool results alone are more.
type MessageWindow struct {
	MaxEntries int
}

// Open begins a turn.
func (w MessageWindow) Open(llm.Request) func(context.Context, []agentsvc.Entry) ([]agentsvc.Entry, []agentsvc.Usage, error) {
	one := func(int) int { return 1 }
	return func(_ context.Context, conversation []agentsvc.Entry) ([]agentsvc.Entry, []agentsvc.Usage, error) {
		return trimToLimit(conversation, w.MaxEntries, 0, one), nil, nil
	}
}

// TokenWindow keeps the longest end of the conversation that has at most Budget tokens, and at least the last
// MinEntries entries.
type TokenWindow struct {
	// App is the app whose share of the processors counting uses, see package processor.
	App         string
	Budget      int
	MinEntries  int
	CountTokens TokenCounter
}

// Open begins a turn. The counts of entries are kept during the turn.
func (w TokenWindow) Open(llm.Request) func(context.Context, []agentsvc.Entry) ([]agentsvc.Entry, []agentsvc.Usage, error) {
	c := tokenCounts{}
	return func(ctx context.Context, conversation []agentsvc.Entry) ([]agentsvc.Entry, []agentsvc.Usage, error) {
		work := pattern.NewStepBudget(ctx, w.App, 0)
		trimmed := trimToLimit(conversation, w.Budget, w.MinEntries, c.countFunc(work, w.CountTokens, conversation))
		return trimmed, nil, work.Err()
	}
}

// trimToLimit returns the longest end of a conversation whose entries cost at most limit, including the user's message
// that must precede an end that begins otherwise. The last recent entries stay at any cost.
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
		// opening is the cost of the user's message that would be put before an end that begins at p.
		opening := 0
		if o := questionIndex(conversation, p); o < p {
			opening = cost(o)
		}
		switch {
		case len(conversation)-p <= recent, total+opening <= limit:
			from = p
		// Earlier splits only cost more.
		case total > limit:
			return entriesFrom(conversation, from)
		}
	}
	return entriesFrom(conversation, from)
}

// entriesFrom returns the entries from an index on, preceded by the user's message that they answer.
func entriesFrom(conversation []agentsvc.Entry, from int) []agentsvc.Entry {
	if o := questionIndex(conversation, from); o < from {
		return append([]agentsvc.Entry{conversation[o]}, conversation[from:]...)
	}
	return conversation[from:]
}

// questionIndex returns the index of the last user's message at or before from, or from if there is none.
func questionIndex(conversation []agentsvc.Entry, from int) int {
	for i := from; i >= 0; i-- {
		if i < len(conversation) && conversation[i].Message != nil && conversation[i].Message.Role == agentsvc.RoleUser {
			return i
		}
	}
	return from
}

// splitPoints returns the indices at which the conversation may be cut. Each begins a piece: a message, or a message
// with tool calls together with everything up to its last result.
func splitPoints(conversation []agentsvc.Entry) (begins []int) {
	// requested has the index of the message that made each call.
	requested := map[agentsvc.CallID]int{}
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
		// Remove the splits between the call and its result.
		for len(begins) > 0 && begins[len(begins)-1] > caller {
			begins = begins[:len(begins)-1]
		}
		if len(begins) == 0 {
			begins = []int{i}
		}
	}
	return begins
}
