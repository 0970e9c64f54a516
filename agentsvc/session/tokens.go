package session

import (
	"encoding/json"
	"sync"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
)

// TokenCounter counts the tokens of a text.
type TokenCounter func(text string) int

// NewTokenCounter returns how a vendor's model counts: exactly for those of openai, by [EstimateTokens] for any other, whose
// vendors publish no tokenizer that works offline.
func NewTokenCounter(provider, model string) TokenCounter {
	if provider != "openai" {
		return EstimateTokens
	}
	codec := sync.OnceValue(func() tokenizer.Codec {
		if c, err := tokenizer.ForModel(tokenizer.Model(model)); err == nil {
			return c
		}
		c, _ := tokenizer.Get(tokenizer.O200kBase) // of the models that came last
		return c
	})
	return func(text string) int {
		exact := text[:min(len(text), maxExactBytes)]
		n, err := codec().Count(exact)
		if err != nil {
			return EstimateTokens(text)
		}
		return n + EstimateTokens(text[len(exact):])
	}
}

// maxExactBytes bounds the bytes of a text that are counted exactly: no budget is that large.
const maxExactBytes = 1 << 20

// EstimateTokens counts a token for every 4 bytes of ASCII and one for every other character. It is near for English, and
// high rather than low for other languages.
func EstimateTokens(text string) int {
	ascii, other := 0, 0
	for _, r := range text {
		if r < utf8.RuneSelf {
			ascii++
		} else {
			other++
		}
	}
	return (ascii+3)/4 + other
}

const (
	tokensPerEntry = 4    // what a message costs besides its content
	tokensPerFile  = 1000 // what a file costs: vendors count pixels, pages and seconds, each in its own way
)

// countEntry counts the tokens of an entry.
func countEntry(count TokenCounter, e agentsvc.Entry) int {
	if r := e.Result; r != nil {
		return tokensPerEntry + count(r.Text)
	}
	n := tokensPerEntry
	for _, p := range e.Message.Parts {
		switch {
		case p.File != nil:
			n += tokensPerFile
		case p.Data != nil:
			raw, _ := json.Marshal(p.Data.Value)
			n += count(string(raw))
		default:
			n += count(p.Text)
		}
	}
	for _, c := range e.Message.ToolCalls {
		n += tokensPerEntry + count(c.Name) + count(string(c.Arguments))
	}
	return n
}

// tokenCounts remembers what the entries of a turn's conversation cost, by what they hold.
type tokenCounts map[any]int

// countFunc returns the cost of each entry of talk.
func (c tokenCounts) countFunc(count TokenCounter, conversation []agentsvc.Entry) func(i int) int {
	return func(i int) int {
		var key any = conversation[i].Message
		if conversation[i].Message == nil {
			key = conversation[i].Result
		}
		n, ok := c[key]
		if !ok {
			n = countEntry(count, conversation[i])
			c[key] = n
		}
		return n
	}
}

// CountRequest counts the tokens of a request: what is said, and the tools that are offered.
func CountRequest(count TokenCounter, req llm.Request) int {
	n := tokensPerEntry + count(req.System)
	for _, e := range req.Conversation {
		n += countEntry(count, e)
	}
	for _, t := range req.Tools {
		n += tokensPerEntry + count(t.Name) + count(t.Description) + count(string(t.Parameters))
	}
	return n
}
