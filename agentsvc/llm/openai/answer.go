package openai

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/openai/openai-go/v3"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
)

// Bounds of what one answer may gather.
const (
	maxCalls     = 128
	maxArguments = 4 << 20  // bytes, of all calls
	maxText      = 16 << 20 // bytes
	maxTokens    = 1 << 40  // a count beyond is no count
)

// answer puts the pieces of one completion together.
type answer struct {
	step      string
	taken     map[agentsvc.CallID]bool
	calls     []*call
	current   map[int64]*call // by the index that the server gives
	arguments int
	text      int
	refused   bool
	finish    string
	usage     agentsvc.Usage
	reported  bool
}

// call is a tool call whose arguments are still coming in.
type call struct {
	id, name  string
	arguments []byte
}

func newAnswer(p *Provider, req llm.Request) *answer {
	a := &answer{step: req.Step, taken: map[agentsvc.CallID]bool{"": true}, current: map[int64]*call{}}
	a.usage = agentsvc.Usage{Provider: p.opts.Name, Model: p.opts.Model}
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

// add takes in the next event and returns what can be shown at once: text.
func (a *answer) add(ev openai.ChatCompletionChunk) ([]llm.Chunk, error) {
	if ev.JSON.Usage.Valid() {
		a.count(ev.Usage)
	}
	var out []llm.Chunk
	for _, choice := range ev.Choices {
		if choice.Index != 0 {
			continue
		}
		for _, text := range []string{choice.Delta.Content, choice.Delta.Refusal} {
			if a.text += len(text); text != "" {
				out = append(out, llm.Chunk{Text: text})
			}
		}
		a.refused = a.refused || choice.Delta.Refusal != ""
		for _, piece := range choice.Delta.ToolCalls {
			a.piece(piece)
		}
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
	}
	if a.text > maxText || a.arguments > maxArguments || len(a.calls) > maxCalls {
		return nil, errTooLong
	}
	return out, nil
}

// piece takes in a piece of a tool call. Some servers give parallel calls one index: a new id then starts a new call.
func (a *answer) piece(piece openai.ChatCompletionChunkChoiceDeltaToolCall) {
	c := a.current[piece.Index]
	if c == nil || (piece.ID != "" && c.id != "" && piece.ID != c.id) {
		c = &call{}
		a.calls = append(a.calls, c)
		a.current[piece.Index] = c
	}
	if piece.ID != "" {
		c.id = piece.ID
	}
	if c.name == "" {
		c.name = piece.Function.Name
	}
	c.arguments = append(c.arguments, piece.Function.Arguments...)
	a.arguments += len(piece.Function.Arguments) + len(piece.Function.Name) + len(piece.ID)
}

func (a *answer) count(u openai.CompletionUsage) {
	a.reported = true
	a.usage.InputTokens = tokens(u.PromptTokens)
	a.usage.OutputTokens = tokens(u.CompletionTokens)
	a.usage.CacheReadTokens = min(tokens(u.PromptTokensDetails.CachedTokens), a.usage.InputTokens)
	a.usage.ReasoningTokens = min(tokens(u.CompletionTokensDetails.ReasoningTokens), a.usage.OutputTokens)
}

func tokens(n int64) int64 {
	if n < 0 || n > maxTokens {
		return 0
	}
	return n
}

// end returns the last chunks of an answer that came to its end, its tool calls among them.
func (a *answer) end() ([]llm.Chunk, error) {
	if a.finish == "" {
		return nil, errBrokeOff
	}
	last := llm.Chunk{Stop: llm.StopEnd}
	if a.reported {
		last.Usage = &a.usage
	}
	var out []llm.Chunk
	switch {
	case a.finish == "length":
		last.Stop = llm.StopLength
	case a.finish == "content_filter":
		last.Stop = llm.StopRefusal
		if a.text == 0 {
			out = append(out, llm.Chunk{Text: "The model's content filter stopped the answer."})
		}
	case a.refused:
		last.Stop = llm.StopRefusal
	case len(a.calls) > 0:
		last.Stop = llm.StopTools
		for i, c := range a.calls {
			whole, err := a.whole(i, c)
			if err != nil {
				return nil, err
			}
			out = append(out, llm.Chunk{ToolCall: whole})
		}
	}
	return append(out, last), nil
}

// whole returns a call whose arguments are complete. Where the server gave no id, or one that the conversation has
// already, it gets one that depends on the step alone.
func (a *answer) whole(n int, c *call) (*agentsvc.ToolCall, error) {
	args := json.RawMessage(c.arguments)
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if c.name == "" || !json.Valid(args) {
		return nil, errMalformedCall
	}
	id := agentsvc.CallID(c.id)
	if a.taken[id] {
		seed := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", a.step, len(a.taken), n))
		id = agentsvc.CallID("call_" + hex.EncodeToString(seed[:12]))
	}
	a.taken[id] = true
	return &agentsvc.ToolCall{ID: id, Name: c.name, Arguments: args}, nil
}
