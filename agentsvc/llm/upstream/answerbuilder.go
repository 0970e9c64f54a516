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
	maxCalls          = 128
	maxFileFactor     = 4       // times as many bytes of files as of text
	maxTokens         = 1 << 40 // a count beyond is no count
	contentFilterText = "The model's content filter stopped the answer."
)

// AnswerBuilder puts the pieces of one answer together and holds them to their bounds: of text, of what is held until the end (arguments
// and thoughts), and of files. All of them count for what its app may have in memory.
type AnswerBuilder struct {
	ctx           context.Context
	maxBytes      int // bytes of text, and of what is held
	step          string
	usedIDs       map[agentsvc.CallID]bool
	calls         []*PartialCall
	bufferedBytes int // bytes
	textBytes     int // bytes
	fileBytes     int // bytes
	usage         agentsvc.Usage
	hasUsage      bool
}

// PartialCall is a tool call that is still coming in.
type PartialCall struct {
	ID, Name string
	Thought  string // what goes back to the vendor with the call
	args     []byte
}

// NewAnswerBuilder returns the empty answer of a model to req.
func NewAnswerBuilder(ctx context.Context, provider, model string, req llm.Request) *AnswerBuilder {
	a := &AnswerBuilder{ctx: ctx, maxBytes: req.ByteLimit(), step: req.Step, usedIDs: map[agentsvc.CallID]bool{"": true}}
	a.usage = agentsvc.Usage{Provider: provider, Model: model}
	for _, e := range req.Conversation {
		if e.Message == nil {
			continue
		}
		for _, c := range e.Message.ToolCalls {
			a.usedIDs[c.ID] = true
		}
	}
	return a
}

// AddText takes in a piece of text and returns the chunks to show for it.
func (a *AnswerBuilder) AddText(piece string) ([]llm.Chunk, error) {
	if piece == "" {
		return nil, nil
	}
	if err := a.addBytes(&a.textBytes, len(piece), a.maxBytes); err != nil {
		return nil, err
	}
	return []llm.Chunk{{Text: piece}}, nil
}

// IsEmpty reports whether no text came in so far.
func (a *AnswerBuilder) IsEmpty() bool { return a.textBytes == 0 }

// StartCall starts a tool call. Its id and name may follow later.
func (a *AnswerBuilder) StartCall(id, name string) (*PartialCall, error) {
	if len(a.calls) == maxCalls {
		return nil, ErrTooLong
	}
	c := &PartialCall{ID: id, Name: name}
	a.calls = append(a.calls, c)
	return c, a.AddBufferedBytes(len(id) + len(name))
}

// AddFileBytes counts the bytes of a file that is part of the answer.
func (a *AnswerBuilder) AddFileBytes(n int) error {
	return a.addBytes(&a.fileBytes, n, maxFileFactor*a.maxBytes)
}

// addBytes counts n bytes more of a kind of which there may be as many as most.
func (a *AnswerBuilder) addBytes(count *int, n, limit int) error {
	if *count += n; *count > limit {
		return ErrTooLong
	}
	return capacity.ReservationFrom(a.ctx).ReserveBytes(a.ctx, int64(n))
}

// AppendArguments adds a piece to the arguments of c.
func (a *AnswerBuilder) AppendArguments(c *PartialCall, piece string) error {
	if err := a.AddBufferedBytes(len(piece)); err != nil {
		return err
	}
	c.args = append(c.args, piece...)
	return nil
}

// Calls returns the tool calls so far, in their order.
func (a *AnswerBuilder) Calls() []*PartialCall { return a.calls }

// AddBufferedBytes counts bytes that are kept until the end of the answer. It returns [ErrTooLong] where they are too many, and what
// [capacity.Hold.Add] returns.
func (a *AnswerBuilder) AddBufferedBytes(n int) error {
	return a.addBytes(&a.bufferedBytes, n, a.maxBytes)
}

// SetUsage sets the answer's usage, as [agentsvc.Usage] counts it: in includes read and written, out includes reasoning.
// What cannot be a count is taken for none.
func (a *AnswerBuilder) SetUsage(in, out, read, written, reasoning int64) {
	a.hasUsage = true
	a.usage.InputTokens, a.usage.OutputTokens = validTokenCount(in), validTokenCount(out)
	a.usage.CacheReadTokens = min(validTokenCount(read), a.usage.InputTokens)
	a.usage.CacheWriteTokens = min(validTokenCount(written), a.usage.InputTokens-a.usage.CacheReadTokens)
	a.usage.ReasoningTokens = min(validTokenCount(reasoning), a.usage.OutputTokens)
}

func validTokenCount(n int64) int64 {
	if n < 0 || n > maxTokens {
		return 0
	}
	return n
}

// Finish returns the last chunks of an answer that came to its end for the reason stop: its tool calls, unless it was cut
// short or refused, its usage and the stop.
func (a *AnswerBuilder) Finish(stop llm.StopReason) ([]llm.Chunk, error) {
	last := llm.Chunk{Stop: stop}
	if a.hasUsage {
		last.Usage = &a.usage
	}
	var out []llm.Chunk
	switch {
	case stop == llm.StopRefusal && a.IsEmpty():
		out = append(out, llm.Chunk{Text: contentFilterText})
	case stop == llm.StopRefusal, stop == llm.StopLength:
	case len(a.calls) > 0:
		last.Stop = llm.StopTools
		for i, c := range a.calls {
			completed, err := a.completeCall(i, c)
			if err != nil {
				return nil, err
			}
			out = append(out, llm.Chunk{ToolCall: completed})
		}
	default:
		last.Stop = llm.StopEnd
	}
	return append(out, last), nil
}

// completeCall returns a call whose arguments are complete. Where the server gave no id, or one that the conversation has
// already, it gets one that depends on the step alone.
func (a *AnswerBuilder) completeCall(n int, c *PartialCall) (*agentsvc.ToolCall, error) {
	args := json.RawMessage(c.args)
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if c.Name == "" || !json.Valid(args) {
		return nil, ErrMalformedCall
	}
	id := agentsvc.CallID(c.ID)
	if a.usedIDs[id] {
		seed := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", a.step, len(a.usedIDs), n))
		id = agentsvc.CallID("call_" + hex.EncodeToString(seed[:12]))
	}
	a.usedIDs[id] = true
	return &agentsvc.ToolCall{ID: id, Name: c.Name, Arguments: args, Thought: c.Thought}, nil
}
