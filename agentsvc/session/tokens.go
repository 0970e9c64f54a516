package session

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/pattern"
)

// TokenCounter returns the number of tokens of a text. What it takes is paid for from the work; once that has failed, the
// number is an estimate.
type TokenCounter func(w *pattern.StepBudget, text string) int

// NewTokenCounter returns the counter for a vendor's model: exact for openai, up to maxExactBytes, else [EstimateTokens],
// since the other vendors publish no tokenizer that works offline.
func NewTokenCounter(provider, model string) TokenCounter {
	if provider != "openai" {
		return func(_ *pattern.StepBudget, text string) int { return EstimateTokens(text) }
	}
	encoding := sync.OnceValue(func() *codec.Codec { return newEncoding(model) })
	return func(w *pattern.StepBudget, text string) int {
		w.BeginComputation()
		defer w.EndComputation()
		n := 0
		for text != "" {
			piece := cutPiece(text)
			if w.SpentSteps()+int64(len(piece)*stepsPerByte) > maxExactBytes*stepsPerByte {
				break
			}
			w.AddSteps(int64(len(piece) * stepsPerByte))
			if w.SpendSteps(len(piece)*stepsPerByte) != nil {
				break
			}
			tokens, err := encoding().Count(piece)
			if err != nil {
				break
			}
			n += tokens
			text = text[len(piece):]
		}
		return n + EstimateTokens(text)
	}
}

// cl100kPrefixes are the beginnings of the names of models with the encoding cl100k_base, and o200kPrefixes those of newer
// models whose names begin with one of them.
var (
	cl100kPrefixes = []string{"gpt-4", "gpt-3.5", "gpt-35", "text-embedding-", "ft:gpt-4", "ft:gpt-3.5", "ft:davinci-002", "ft:babbage-002"}
	o200kPrefixes  = []string{"gpt-4o", "gpt-4.1", "gpt-4.5", "ft:gpt-4o", "ft:gpt-4.1"}
)

// newEncoding returns the encoding of a model of the APIs that Stoa calls. An unknown model is probably a new one and has the
// latest encoding. The package above codec would choose as well, but links the vocabularies of models that only the API of
// completions has, which Stoa does not call: 2.4 MB.
func newEncoding(model string) *codec.Codec {
	has := func(prefix string) bool { return strings.HasPrefix(model, prefix) }
	if slices.ContainsFunc(cl100kPrefixes, has) && !slices.ContainsFunc(o200kPrefixes, has) {
		return codec.NewCl100kBase()
	}
	return codec.NewO200kBase()
}

const (
	// maxExactBytes bounds what is counted exactly from one work, such as the texts of one request together; the rest is
	// estimated. No window is that large, and counting a MiB takes 0.4 s.
	maxExactBytes = 1 << 20
	// maxPieceBytes bounds what is counted between two looks at the context, which takes 2.6 ms at most. Pieces end
	// before white space where there is some, as most tokens do, so that their sum is near the exact number.
	maxPieceBytes = 4 << 10
	// stepsPerByte is the price of a byte that is counted: as many steps as a pattern takes in the same time.
	stepsPerByte = 32
)

// cutPiece returns the beginning of a text that is counted in one go.
func cutPiece(text string) string {
	if len(text) <= maxPieceBytes {
		return text
	}
	end := maxPieceBytes
	for i := end; i > maxPieceBytes/2; i-- {
		if isSpace(text[i]) && !isSpace(text[i-1]) {
			return text[:i]
		}
	}
	for end > maxPieceBytes-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// EstimateTokens counts one token for 4 bytes of ASCII and one for each other character. That is close for English and
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
	// tokensPerEntry is the overhead of a message, a tool call or a tool.
	tokensPerEntry = 4
	// tokensPerFile is a rough value: vendors count pixels, pages or seconds, each by rules of its own.
	tokensPerFile = 1000
)

// countEntry returns the tokens of an entry of a conversation.
func countEntry(w *pattern.StepBudget, count TokenCounter, e agentsvc.Entry) int {
	if r := e.Result; r != nil {
		return tokensPerEntry + count(w, r.Text)
	}
	n := tokensPerEntry
	for _, p := range e.Message.Parts {
		switch {
		case p.File != nil:
			n += tokensPerFile
		case p.Data != nil:
			raw, _ := json.Marshal(p.Data.Value)
			n += count(w, string(raw))
		default:
			n += count(w, p.Text)
		}
	}
	for _, c := range e.Message.ToolCalls {
		n += tokensPerEntry + count(w, c.Name) + count(w, string(c.Arguments))
	}
	return n
}

// tokenCounts caches the tokens of entries during a turn. The key is the pointer to the entry's message or result,
// which does not change during the turn.
type tokenCounts map[any]int

// countFunc returns a function that returns the tokens of entry i of the conversation.
func (c tokenCounts) countFunc(w *pattern.StepBudget, count TokenCounter, conversation []agentsvc.Entry) func(i int) int {
	return func(i int) int {
		var key any = conversation[i].Message
		if conversation[i].Message == nil {
			key = conversation[i].Result
		}
		n, ok := c[key]
		if !ok {
			n = countEntry(w, count, conversation[i])
			c[key] = n
		}
		return n
	}
}

// CountRequest returns the tokens of a request: the system prompt, the conversation and the tools.
func CountRequest(w *pattern.StepBudget, count TokenCounter, req llm.Request) int {
	n := tokensPerEntry + count(w, req.SystemText())
	for _, e := range req.Conversation {
		n += countEntry(w, count, e)
	}
	for _, t := range req.Tools {
		n += tokensPerEntry + count(w, t.Name) + count(w, t.Description) + count(w, string(t.Parameters))
	}
	return n
}
