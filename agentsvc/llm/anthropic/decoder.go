package anthropic

import (
	"encoding/json"

	"github.com/anthropics/anthropic-sdk-go"

	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// answerDecoder puts the events of one message together.
type answerDecoder struct {
	*upstream.AnswerBuilder
	calls                        map[int64]*upstream.PartialCall // by the block's index, as the next two
	thinkingByIndex              map[int64]*thinkingBlock
	thinkingBlocks               []*thinkingBlock
	stopReason                   anthropic.StopReason
	inputTokens, cacheReadTokens int64
	cacheWriteTokens             int64
}

// thinkingBlock is a block of thought that is still coming in.
type thinkingBlock struct {
	text, signature []byte
	redacted        string
}

func newAnswerDecoder(a *upstream.AnswerBuilder) *answerDecoder {
	return &answerDecoder{AnswerBuilder: a, calls: map[int64]*upstream.PartialCall{}, thinkingByIndex: map[int64]*thinkingBlock{}}
}

// addEvent takes in the next event and returns what can be shown at once: text.
func (a *answerDecoder) addEvent(ev anthropic.MessageStreamEventUnion) ([]llm.Chunk, error) {
	switch ev.Type {
	case "message_start":
		u := ev.Message.Usage
		a.inputTokens, a.cacheReadTokens, a.cacheWriteTokens = u.InputTokens, u.CacheReadInputTokens, u.CacheCreationInputTokens
		a.updateUsage(u.OutputTokens, u.OutputTokensDetails.ThinkingTokens)
	case "content_block_start":
		return a.startBlock(ev)
	case "content_block_delta":
		return a.addDelta(ev)
	case "message_delta":
		if ev.Delta.StopReason != "" {
			a.stopReason = ev.Delta.StopReason
		}
		if u := ev.Usage; ev.JSON.Usage.Valid() {
			a.inputTokens, a.cacheReadTokens, a.cacheWriteTokens = max(a.inputTokens, u.InputTokens), max(a.cacheReadTokens, u.CacheReadInputTokens), max(a.cacheWriteTokens, u.CacheCreationInputTokens)
			a.updateUsage(u.OutputTokens, u.OutputTokensDetails.ThinkingTokens)
		}
	}
	return nil, nil
}

// updateUsage sets the usage. The API counts apart what is read from the cache and written to it.
func (a *answerDecoder) updateUsage(out, reasoning int64) {
	a.SetUsage(a.inputTokens+a.cacheReadTokens+a.cacheWriteTokens, out, a.cacheReadTokens, a.cacheWriteTokens, reasoning)
}

func (a *answerDecoder) startBlock(ev anthropic.MessageStreamEventUnion) ([]llm.Chunk, error) {
	block := ev.ContentBlock
	switch block.Type {
	case "text":
		return a.AddText(block.Text)
	case "tool_use":
		call, err := a.StartCall(block.ID, block.Name)
		a.calls[ev.Index] = call
		return nil, err
	case "thinking", "redacted_thinking":
		t := &thinkingBlock{text: []byte(block.Thinking), signature: []byte(block.Signature), redacted: block.Data}
		a.thinkingByIndex[ev.Index] = t
		a.thinkingBlocks = append(a.thinkingBlocks, t)
		// What a block costs beside its text keeps the number of blocks bounded.
		return nil, a.AddBufferedBytes(len(t.text) + len(t.signature) + len(t.redacted) + 64)
	}
	return nil, nil
}

func (a *answerDecoder) addDelta(ev anthropic.MessageStreamEventUnion) ([]llm.Chunk, error) {
	d := ev.Delta
	switch d.Type {
	case "text_delta":
		return a.AddText(d.Text)
	case "input_json_delta":
		if call := a.calls[ev.Index]; call != nil {
			return nil, a.AppendArguments(call, d.PartialJSON)
		}
	case "thinking_delta", "signature_delta":
		if t := a.thinkingByIndex[ev.Index]; t != nil {
			t.text = append(t.text, d.Thinking...)
			t.signature = append(t.signature, d.Signature...)
			return nil, a.AddBufferedBytes(len(d.Thinking) + len(d.Signature))
		}
	}
	return nil, nil
}

// finishAnswer returns the last chunks of an answer that came to its end.
func (a *answerDecoder) finishAnswer() ([]llm.Chunk, error) {
	if calls := a.Calls(); len(calls) > 0 && len(a.thinkingBlocks) > 0 {
		list := make([]sealedThought, len(a.thinkingBlocks))
		for i, t := range a.thinkingBlocks {
			list[i] = sealedThought{string(t.text), string(t.signature), t.redacted}
		}
		text, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		calls[0].Thought = upstream.SealThought(vendorName, string(text))
	}
	switch a.stopReason {
	case "":
		return nil, upstream.ErrBrokeOff
	case anthropic.StopReasonMaxTokens, anthropic.StopReasonModelContextWindowExceeded:
		return a.Finish(llm.StopLength)
	case anthropic.StopReasonRefusal:
		return a.Finish(llm.StopRefusal)
	}
	return a.Finish(llm.StopEnd)
}
