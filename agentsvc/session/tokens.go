package session

import (
	"encoding/json"
	"sync"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
)

// Counter counts the tokens of a text.
type Counter func(text string) int

// CounterFor returns how a vendor's model counts: exactly for those of openai, by [Estimate] for any other, whose
// vendors publish no tokenizer that works offline.
func CounterFor(provider, model string) Counter {
	if provider != "openai" {
		return Estimate
	}
	codec := sync.OnceValue(func() tokenizer.Codec {
		if c, err := tokenizer.ForModel(tokenizer.Model(model)); err == nil {
			return c
		}
		c, _ := tokenizer.Get(tokenizer.O200kBase) // of the models that came last
		return c
	})
	return func(text string) int {
		exact := text[:min(len(text), longestExact)]
		n, err := codec().Count(exact)
		if err != nil {
			return Estimate(text)
		}
		return n + Estimate(text[len(exact):])
	}
}

// longestExact bounds the bytes of a text that are counted exactly: no budget is that large.
const longestExact = 1 << 20

// Estimate counts a token for every 4 bytes of ASCII and one for every other character. It is near for English, and
// high rather than low for other languages.
func Estimate(text string) int {
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
	perEntry = 4    // what a message costs besides its content
	perFile  = 1000 // what a file costs: vendors count pixels, pages and seconds, each in its own way
)

// costOf counts the tokens of an entry.
func costOf(count Counter, e agentsvc.Entry) int {
	if r := e.Result; r != nil {
		return perEntry + count(r.Text)
	}
	n := perEntry
	for _, p := range e.Message.Parts {
		switch {
		case p.File != nil:
			n += perFile
		case p.Data != nil:
			raw, _ := json.Marshal(p.Data.Value)
			n += count(string(raw))
		default:
			n += count(p.Text)
		}
	}
	for _, c := range e.Message.ToolCalls {
		n += perEntry + count(c.Name) + count(string(c.Arguments))
	}
	return n
}

// costs remembers what the entries of a turn's conversation cost, by what they hold.
type costs map[any]int

// of returns the cost of each entry of talk.
func (c costs) of(count Counter, talk []agentsvc.Entry) func(i int) int {
	return func(i int) int {
		var key any = talk[i].Message
		if talk[i].Message == nil {
			key = talk[i].Result
		}
		n, ok := c[key]
		if !ok {
			n = costOf(count, talk[i])
			c[key] = n
		}
		return n
	}
}

// Size counts the tokens of a request: what is said, and the tools that are offered.
func Size(count Counter, req llm.Request) int {
	n := perEntry + count(req.System)
	for _, e := range req.Conversation {
		n += costOf(count, e)
	}
	for _, t := range req.Tools {
		n += perEntry + count(t.Name) + count(t.Description) + count(string(t.Parameters))
	}
	return n
}
