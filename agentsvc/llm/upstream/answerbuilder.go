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

// Bounds of one answer.
const (
	// maxCalls is the largest number of tool calls, as in package agent.
	maxCalls = 128
	// maxFileFactor is the bound of file bytes as a multiple of the bound of text bytes.
	maxFileFactor = 4
	// maxTokens is the largest plausible token count. A larger number is an error of the server and counts as 0.
	maxTokens         = 1 << 40
	contentFilterText = "The model's content filter stopped the answer."
)

// AnswerBuilder assembles one answer from its pieces and enforces its bounds: of text, of what is buffered until the
// end (arguments and thoughts), and of files. All bytes are reserved for the app (package capacity). A vendor's decoder
// embeds it. It is used by one goroutine.
type AnswerBuilder struct {
	// ctx is the call's. memory reserves the answer's memory.
	ctx    context.Context
	memory *capacity.MemoryReservation
	// maxBytes bounds textBytes, and separately bufferedBytes.
	maxBytes int
	// step is llm.Request.Step, for generated call ids.
	step string
	// usedIDs are the call ids of the conversation and of this answer, and "". Each call must have an id of its own,
	// since results refer to it.
	usedIDs map[agentsvc.CallID]bool
	calls   []*PartialCall
	// bufferedBytes, textBytes and fileBytes count bytes by kind.
	bufferedBytes int
	textBytes     int
	fileBytes     int
	usage         agentsvc.Usage
	// hasUsage reports that the server reported the usage. Otherwise the meter estimates it.
	hasUsage bool
}

// PartialCall is a tool call whose arguments are still arriving.
type PartialCall struct {
	ID, Name string
	// Thought is returned to the vendor with the call in later requests, see SealThought.
	Thought string
	args    []byte
}

// NewAnswerBuilder returns an empty answer to req.
func NewAnswerBuilder(ctx context.Context, provider, model string, req llm.Request) *AnswerBuilder {
	a := &AnswerBuilder{ctx: ctx, memory: req.Memory, maxBytes: req.ByteLimit(), step: req.Step, usedIDs: map[agentsvc.CallID]bool{"": true}}
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

// AddText adds a piece of text and returns the chunks to show for it, none for "".
func (a *AnswerBuilder) AddText(piece string) ([]llm.Chunk, error) {
	if piece == "" {
		return nil, nil
	}
	if err := a.addBytes(&a.textBytes, len(piece), a.maxBytes); err != nil {
		return nil, err
	}
	return []llm.Chunk{{Text: piece}}, nil
}

// IsEmpty reports whether the answer has no text yet.
func (a *AnswerBuilder) IsEmpty() bool { return a.textBytes == 0 }

// StartCall adds a tool call. The decoder may set its id and name later.
func (a *AnswerBuilder) StartCall(id, name string) (*PartialCall, error) {
	if len(a.calls) == maxCalls {
		return nil, ErrTooLong
	}
	c := &PartialCall{ID: id, Name: name}
	a.calls = append(a.calls, c)
	return c, a.AddBufferedBytes(len(id) + len(name))
}

// AddFileBytes counts the bytes of a file in the answer.
func (a *AnswerBuilder) AddFileBytes(n int) error {
	return a.addBytes(&a.fileBytes, n, maxFileFactor*a.maxBytes)
}

// addBytes adds n bytes to a count and reserves them. It returns [ErrTooLong] beyond limit, or the error of the
// reservation.
func (a *AnswerBuilder) addBytes(count *int, n, limit int) error {
	if *count += n; *count > limit {
		return ErrTooLong
	}
	return a.memory.ReserveBytes(a.ctx, int64(n))
}

// AppendArguments appends a piece to the arguments of c.
func (a *AnswerBuilder) AppendArguments(c *PartialCall, piece string) error {
	if err := a.AddBufferedBytes(len(piece)); err != nil {
		return err
	}
	c.args = append(c.args, piece...)
	return nil
}

// Calls returns the tool calls so far, in order.
func (a *AnswerBuilder) Calls() []*PartialCall { return a.calls }

// AddBufferedBytes counts bytes that are buffered until the end of the answer. It returns [ErrTooLong] if there are too
// many, or the error of [capacity.MemoryReservation.ReserveBytes].
func (a *AnswerBuilder) AddBufferedBytes(n int) error {
	return a.addBytes(&a.bufferedBytes, n, a.maxBytes)
}

// SetUsage sets the usage, in tokens, as [agentsvc.Usage] counts it: in includes the tokens read from and written to
// the cache, out includes reasoning. Implausible counts become 0, and parts are cut to their whole, so that a faulty
// server cannot make a price negative.
func (a *AnswerBuilder) SetUsage(in, out, read, written, reasoning int64) {
	a.hasUsage = true
	a.usage.InputTokens, a.usage.OutputTokens = validTokenCount(in), validTokenCount(out)
	a.usage.CacheReadTokens = min(validTokenCount(read), a.usage.InputTokens)
	a.usage.CacheWriteTokens = min(validTokenCount(written), a.usage.InputTokens-a.usage.CacheReadTokens)
	a.usage.ReasoningTokens = min(validTokenCount(reasoning), a.usage.OutputTokens)
}

// validTokenCount returns n, or 0 if n is not a plausible count.
func validTokenCount(n int64) int64 {
	if n < 0 || n > maxTokens {
		return 0
	}
	return n
}

// Finish returns the last chunks of a complete answer: its tool calls, the usage and the stop reason. An answer that
// was cut off or refused yields no calls, since they may be incomplete. A call that is malformed fails the answer.
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

// completeCall returns the n-th call as a domain value. A call without an id, or with one that is used already, gets an
// id derived from the step, so that a repeated attempt derives the same one.
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
