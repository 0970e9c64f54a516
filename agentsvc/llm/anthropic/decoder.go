package anthropic

import (
	"cmp"
	"encoding/json"

	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// answerDecoder assembles the events of one message. Blocks of content are interleaved and numbered by the server.
type answerDecoder struct {
	*upstream.AnswerBuilder
	// calls and thinkingByIndex hold the blocks in progress, by block index.
	calls           map[upstream.LenientInt]*upstream.PartialCall
	thinkingByIndex map[upstream.LenientInt]*thinkingBlock
	// thinkingBlocks are all blocks of thought, in order.
	thinkingBlocks []*thinkingBlock
	stopReason     string
	// The token counts of the request: message_start reports them, message_delta may raise them.
	inputTokens, cacheReadTokens int64
	cacheWriteTokens             int64
}

// thinkingBlock is a block of thought. redacted is set instead of text if the vendor encrypted it.
type thinkingBlock struct {
	text, signature []byte
	redacted        string
}

// newAnswerDecoder returns a decoder that adds to a.
func newAnswerDecoder(a *upstream.AnswerBuilder) *answerDecoder {
	return &answerDecoder{AnswerBuilder: a, calls: map[upstream.LenientInt]*upstream.PartialCall{}, thinkingByIndex: map[upstream.LenientInt]*thinkingBlock{}}
}

// addEvent processes the next event and returns the chunks that can be shown at once, i.e. text.
func (a *answerDecoder) addEvent(ev messagesEvent) ([]llm.Chunk, error) {
	switch ev.Type.Value {
	// The first event reports the usage of the request.
	case "message_start":
		a.updateUsage(ev.Message.Value.Usage.Value)
	case "content_block_start":
		return a.startBlock(ev)
	case "content_block_delta":
		return a.addDelta(ev)
	// It reports the stop reason and cumulative counts. max keeps the counts of message_start where it reports none.
	case "message_delta":
		a.stopReason = cmp.Or(ev.Delta.Value.StopReason.Value, a.stopReason)
		if ev.Usage.Valid {
			a.updateUsage(ev.Usage.Value)
		}
	}
	return nil, nil
}

// updateUsage sets the usage. The API counts the tokens read from and written to the cache separately from the input;
// [agentsvc.Usage] includes them.
func (a *answerDecoder) updateUsage(u messagesUsage) {
	a.inputTokens = max(a.inputTokens, int64(u.InputTokens))
	a.cacheReadTokens = max(a.cacheReadTokens, int64(u.CacheReadInputTokens))
	a.cacheWriteTokens = max(a.cacheWriteTokens, int64(u.CacheCreationInputTokens))
	a.SetUsage(a.inputTokens+a.cacheReadTokens+a.cacheWriteTokens, int64(u.OutputTokens),
		a.cacheReadTokens, a.cacheWriteTokens, int64(u.OutputTokensDetails.Value.ThinkingTokens))
}

// startBlock processes the start of a block of content.
func (a *answerDecoder) startBlock(ev messagesEvent) ([]llm.Chunk, error) {
	block := ev.ContentBlock.Value
	switch block.Type.Value {
	case "text":
		return a.AddText(block.Text.Value)
	case "tool_use":
		call, err := a.StartCall(block.ID.Value, block.Name.Value)
		a.calls[ev.Index] = call
		return nil, err
	// Thoughts are buffered, not shown: they go back to the vendor with the calls.
	case "thinking", "redacted_thinking":
		t := &thinkingBlock{text: []byte(block.Thinking.Value), signature: []byte(block.Signature.Value), redacted: block.Data.Value}
		a.thinkingByIndex[ev.Index] = t
		a.thinkingBlocks = append(a.thinkingBlocks, t)
		// The constant is a block's own memory: it bounds the number of empty blocks.
		return nil, a.AddBufferedBytes(len(t.text) + len(t.signature) + len(t.redacted) + 64)
	}
	return nil, nil
}

// addDelta processes a piece of a block. Pieces of unknown blocks are ignored.
func (a *answerDecoder) addDelta(ev messagesEvent) ([]llm.Chunk, error) {
	d := ev.Delta.Value
	switch d.Type.Value {
	case "text_delta":
		return a.AddText(d.Text.Value)
	case "input_json_delta":
		if call := a.calls[ev.Index]; call != nil {
			return nil, a.AppendArguments(call, d.PartialJSON.Value)
		}
	case "thinking_delta", "signature_delta":
		if t := a.thinkingByIndex[ev.Index]; t != nil {
			t.text = append(t.text, d.Thinking.Value...)
			t.signature = append(t.signature, d.Signature.Value...)
			return nil, a.AddBufferedBytes(len(d.Thinking.Value) + len(d.Signature.Value))
		}
	}
	return nil, nil
}

// finishAnswer returns the last chunks of an answer. Without a stop reason the stream ended early.
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
		// The API wants all thoughts before the first call, so that call carries them.
		calls[0].Thought = upstream.SealThought(vendorName, string(text))
	}
	switch a.stopReason {
	case "":
		return nil, upstream.ErrBrokeOff
	case "max_tokens", "model_context_window_exceeded":
		return a.Finish(llm.StopLength)
	case "refusal":
		return a.Finish(llm.StopRefusal)
	}
	return a.Finish(llm.StopEnd)
}
