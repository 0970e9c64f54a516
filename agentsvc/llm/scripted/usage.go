package scripted

import (
	"unicode"

	"stoa/agentsvc/llm"
)

// countInputTokens counts the words that the model reads: of the system prompt, of every message and of every tool result.
// A word, what stands between white space, is this model's token.
func countInputTokens(req llm.Request) int64 {
	n := countWords(req.System)
	for _, e := range req.Conversation {
		switch {
		case e.Result != nil:
			n += countWords(e.Result.Text)
		case e.Message != nil:
			for _, p := range e.Message.Parts {
				n += countWords(p.Text)
			}
		}
	}
	return n
}

func countWords(s string) int64 {
	var n int64
	in := false
	for _, r := range s {
		space := unicode.IsSpace(r)
		if !space && !in {
			n++
		}
		in = !space
	}
	return n
}

// cutWord returns the first word of s with the white space around it, and the rest.
func cutWord(s string) (first, remaining string) {
	seen, after := false, false
	for i, r := range s {
		switch space := unicode.IsSpace(r); {
		case !space && after:
			return s[:i], s[i:]
		case space:
			after = seen
		default:
			seen = true
		}
	}
	return s, ""
}
