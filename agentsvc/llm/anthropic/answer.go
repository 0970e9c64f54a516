package anthropic

import (
	"encoding/json"

	"github.com/anthropics/anthropic-sdk-go"

	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// answer puts the events of one message together.
type answer struct {
	*upstream.Answer
	calls    map[int64]*upstream.Call // by the block's index, as the next two
	thinking map[int64]*thinking
	order    []*thinking
	stop     anthropic.StopReason
	in, read int64
	written  int64
}

// thinking is a block of thought that is still coming in.
type thinking struct {
	text, signature []byte
	redacted        string
}

func newAnswer(a *upstream.Answer) *answer {
	return &answer{Answer: a, calls: map[int64]*upstream.Call{}, thinking: map[int64]*thinking{}}
}

// add takes in the next event and returns what can be shown at once: text.
func (a *answer) add(ev anthropic.MessageStreamEventUnion) ([]llm.Chunk, error) {
	switch ev.Type {
	case "message_start":
		u := ev.Message.Usage
		a.in, a.read, a.written = u.InputTokens, u.CacheReadInputTokens, u.CacheCreationInputTokens
		a.count(u.OutputTokens, u.OutputTokensDetails.ThinkingTokens)
	case "content_block_start":
		return a.start(ev)
	case "content_block_delta":
		return a.delta(ev)
	case "message_delta":
		if ev.Delta.StopReason != "" {
			a.stop = ev.Delta.StopReason
		}
		if u := ev.Usage; ev.JSON.Usage.Valid() {
			a.in, a.read, a.written = max(a.in, u.InputTokens), max(a.read, u.CacheReadInputTokens), max(a.written, u.CacheCreationInputTokens)
			a.count(u.OutputTokens, u.OutputTokensDetails.ThinkingTokens)
		}
	}
	return nil, nil
}

// count sets the usage. The API counts apart what is read from the cache and written to it.
func (a *answer) count(out, reasoning int64) {
	a.Count(a.in+a.read+a.written, out, a.read, a.written, reasoning)
}

func (a *answer) start(ev anthropic.MessageStreamEventUnion) ([]llm.Chunk, error) {
	block := ev.ContentBlock
	switch block.Type {
	case "text":
		return a.Text(block.Text)
	case "tool_use":
		call, err := a.Call(block.ID, block.Name)
		a.calls[ev.Index] = call
		return nil, err
	case "thinking", "redacted_thinking":
		t := &thinking{text: []byte(block.Thinking), signature: []byte(block.Signature), redacted: block.Data}
		a.thinking[ev.Index] = t
		a.order = append(a.order, t)
		// What a block costs beside its text keeps the number of blocks bounded.
		return nil, a.Hold(len(t.text) + len(t.signature) + len(t.redacted) + 64)
	}
	return nil, nil
}

func (a *answer) delta(ev anthropic.MessageStreamEventUnion) ([]llm.Chunk, error) {
	d := ev.Delta
	switch d.Type {
	case "text_delta":
		return a.Text(d.Text)
	case "input_json_delta":
		if call := a.calls[ev.Index]; call != nil {
			return nil, a.Arguments(call, d.PartialJSON)
		}
	case "thinking_delta", "signature_delta":
		if t := a.thinking[ev.Index]; t != nil {
			t.text = append(t.text, d.Thinking...)
			t.signature = append(t.signature, d.Signature...)
			return nil, a.Hold(len(d.Thinking) + len(d.Signature))
		}
	}
	return nil, nil
}

// end returns the last chunks of an answer that came to its end.
func (a *answer) end() ([]llm.Chunk, error) {
	if calls := a.Calls(); len(calls) > 0 && len(a.order) > 0 {
		list := make([]thought, len(a.order))
		for i, t := range a.order {
			list[i] = thought{string(t.text), string(t.signature), t.redacted}
		}
		text, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		calls[0].Thought = upstream.Seal(vendor, string(text))
	}
	switch a.stop {
	case "":
		return nil, upstream.ErrBrokeOff
	case anthropic.StopReasonMaxTokens, anthropic.StopReasonModelContextWindowExceeded:
		return a.End(llm.StopLength)
	case anthropic.StopReasonRefusal:
		return a.End(llm.StopRefusal)
	}
	return a.End(llm.StopEnd)
}
