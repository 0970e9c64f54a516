package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/llm"
)

// Bounds of what one answer may gather.
const (
	maxCalls   = 128
	maxFiles   = 4       // times as many bytes of files as of text
	maxTokens  = 1 << 40 // a count beyond is no count
	filterSays = "The model's content filter stopped the answer."
)

// Answer puts the pieces of one answer together and holds them to their bounds: of text, of what is held until the end (arguments
// and thoughts), and of files. All of them count for what its app may have in memory.
type Answer struct {
	ctx      context.Context
	most     int // bytes of text, and of what is held
	step     string
	taken    map[agentsvc.CallID]bool
	calls    []*Call
	held     int // bytes
	text     int // bytes
	files    int // bytes
	usage    agentsvc.Usage
	reported bool
}

// Call is a tool call that is still coming in.
type Call struct {
	ID, Name string
	Thought  string // what goes back to the vendor with the call
	args     []byte
}

// NewAnswer returns the empty answer of a model to req.
func NewAnswer(ctx context.Context, provider, model string, req llm.Request) *Answer {
	a := &Answer{ctx: ctx, most: req.Bytes(), step: req.Step, taken: map[agentsvc.CallID]bool{"": true}}
	a.usage = agentsvc.Usage{Provider: provider, Model: model}
	for _, e := range req.Conversation {
		if e.Message == nil {
			continue
		}
		for _, c := range e.Message.ToolCalls {
			a.taken[c.ID] = true
		}
	}
	return a
}

// Text takes in a piece of text and returns the chunks to show for it.
func (a *Answer) Text(piece string) ([]llm.Chunk, error) {
	if piece == "" {
		return nil, nil
	}
	if err := a.grow(&a.text, len(piece), a.most); err != nil {
		return nil, err
	}
	return []llm.Chunk{{Text: piece}}, nil
}

// Empty reports whether no text came in so far.
func (a *Answer) Empty() bool { return a.text == 0 }

// Call starts a tool call. Its id and name may follow later.
func (a *Answer) Call(id, name string) (*Call, error) {
	if len(a.calls) == maxCalls {
		return nil, ErrTooLong
	}
	c := &Call{ID: id, Name: name}
	a.calls = append(a.calls, c)
	return c, a.Hold(len(id) + len(name))
}

// File counts the bytes of a file that is part of the answer.
func (a *Answer) File(n int) error { return a.grow(&a.files, n, maxFiles*a.most) }

// grow counts n bytes more of a kind of which there may be as many as most.
func (a *Answer) grow(count *int, n, most int) error {
	if *count += n; *count > most {
		return ErrTooLong
	}
	return capacity.Of(a.ctx).Add(a.ctx, int64(n))
}

// Arguments adds a piece to the arguments of c.
func (a *Answer) Arguments(c *Call, piece string) error {
	if err := a.Hold(len(piece)); err != nil {
		return err
	}
	c.args = append(c.args, piece...)
	return nil
}

// Calls returns the tool calls so far, in their order.
func (a *Answer) Calls() []*Call { return a.calls }

// Hold counts bytes that are kept until the end of the answer. It returns [ErrTooLong] where they are too many, and what
// [capacity.Hold.Add] returns.
func (a *Answer) Hold(n int) error { return a.grow(&a.held, n, a.most) }

// Count sets the answer's usage, as [agentsvc.Usage] counts it: in includes read and written, out includes reasoning.
// What cannot be a count is taken for none.
func (a *Answer) Count(in, out, read, written, reasoning int64) {
	a.reported = true
	a.usage.InputTokens, a.usage.OutputTokens = tokens(in), tokens(out)
	a.usage.CacheReadTokens = min(tokens(read), a.usage.InputTokens)
	a.usage.CacheWriteTokens = min(tokens(written), a.usage.InputTokens-a.usage.CacheReadTokens)
	a.usage.ReasoningTokens = min(tokens(reasoning), a.usage.OutputTokens)
}

func tokens(n int64) int64 {
	if n < 0 || n > maxTokens {
		return 0
	}
	return n
}

// End returns the last chunks of an answer that came to its end for the reason stop: its tool calls, unless it was cut
// short or refused, its usage and the stop.
func (a *Answer) End(stop llm.Stop) ([]llm.Chunk, error) {
	last := llm.Chunk{Stop: stop}
	if a.reported {
		last.Usage = &a.usage
	}
	var out []llm.Chunk
	switch {
	case stop == llm.StopRefusal && a.Empty():
		out = append(out, llm.Chunk{Text: filterSays})
	case stop == llm.StopRefusal, stop == llm.StopLength:
	case len(a.calls) > 0:
		last.Stop = llm.StopTools
		for i, c := range a.calls {
			whole, err := a.whole(i, c)
			if err != nil {
				return nil, err
			}
			out = append(out, llm.Chunk{ToolCall: whole})
		}
	default:
		last.Stop = llm.StopEnd
	}
	return append(out, last), nil
}

// whole returns a call whose arguments are complete. Where the server gave no id, or one that the conversation has
// already, it gets one that depends on the step alone.
func (a *Answer) whole(n int, c *Call) (*agentsvc.ToolCall, error) {
	args := json.RawMessage(c.args)
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if c.Name == "" || !json.Valid(args) {
		return nil, ErrMalformedCall
	}
	id := agentsvc.CallID(c.ID)
	if a.taken[id] {
		seed := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", a.step, len(a.taken), n))
		id = agentsvc.CallID("call_" + hex.EncodeToString(seed[:12]))
	}
	a.taken[id] = true
	return &agentsvc.ToolCall{ID: id, Name: c.Name, Arguments: args, Thought: c.Thought}, nil
}
