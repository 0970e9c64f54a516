package scripted

import (
	"unicode"

	"stoa/agentsvc/llm"
)

// countInputTokens counts the words of the system prompt, the messages and the tool results. A word, i.e. text between
// white space, is this model's token.
func countInputTokens(req llm.Request) int64 {
	n := countWords(req.SystemText())
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

// countWords returns the number of words in s.
func countWords(s string) int64 {
	var n int64
	// in reports that the last character belongs to a word.
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

// cutWord splits s after its first word and the white space around it.
func cutWord(s string) (first, remaining string) {
	// seen: a word has begun; after: white space follows it.
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
