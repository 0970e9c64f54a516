package guardrail

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/text/unicode/norm"

	"stoa/agentsvc"
	"stoa/agentsvc/pattern"
)

// Sanitizer cleans the texts of a message. It is the first check, so the others see the cleaned text.
type Sanitizer struct {
	// TrimWhitespace removes white space at both ends of each text.
	TrimWhitespace bool
	// NormalizeUnicode brings texts into the normal form NFC and removes invisible characters, see dropInvisible.
	NormalizeUnicode bool
	// StripHTML removes tags, comments, scripts and styles.
	StripHTML bool
	// MaxLength cuts the texts to this number of characters in total, 0 = no limit.
	MaxLength int
}

// cleanParts returns the cleaned parts. HTML goes first, because removing it may leave white space and invisible
// characters.
func (s *Sanitizer) cleanParts(w *pattern.StepBudget, parts []agentsvc.Part) []agentsvc.Part {
	parts = rewriteTexts(parts, func(text string) string {
		if s.StripHTML {
			text = stripHTML(w, text)
		}
		if s.NormalizeUnicode {
			text = normalizeText(w, norm.NFC, dropInvisible, text)
		}
		if s.TrimWhitespace {
			text = strings.TrimSpace(text)
		}
		return text
	})
	if s.MaxLength > 0 {
		parts = truncateParts(parts, s.MaxLength)
	}
	return parts
}

// truncateParts returns parts with at most limit characters of text in total.
func truncateParts(parts []agentsvc.Part, limit int) []agentsvc.Part {
	return rewriteTexts(parts, func(text string) string {
		for i := range text {
			if limit == 0 {
				return text[:i]
			}
			limit--
		}
		return text
	})
}

// dropInvisible returns -1 for characters that hide text from people but not from models: tag characters, direction
// overrides, zero-width spaces. Joiners remain, because scripts and emoji need them.
func dropInvisible(r rune) rune {
	switch {
	case r == 0x00AD, r == 0x200B, r == 0xFEFF, r >= 0x202A && r <= 0x202E, r >= 0x2060 && r <= 0x2069, r >= 0xE0000 && r <= 0xE007F:
		return -1
	}
	return r
}

// foldText returns text as a person perceives it: compatibility forms of letters unified (NFKC), characters without a
// glyph removed. It is used to detect text that was disguised by such characters.
func foldText(w *pattern.StepBudget, text string) string {
	return normalizeText(w, norm.NFKC, dropFormatting, text)
}

// dropFormatting returns -1 for characters without a glyph.
func dropFormatting(r rune) rune {
	if unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Variation_Selector, r) {
		return -1
	}
	return r
}

// normalizeText returns text in a normal form, with keep applied to each character. It works in pieces and spends steps
// for each. If the budget fails, it returns "". A result more than twice as long as the text (decompositions of
// some characters are very long) fails the budget.
func normalizeText(w *pattern.StepBudget, form norm.Form, keep func(rune) rune, text string) string {
	if isASCII(text) {
		return text
	}
	const piece = 16 << 10
	var out strings.Builder
	out.Grow(len(text))
	normal := form.Writer(&out)
	longest := max(2*len(text), 64<<10)
	for text != "" {
		n := min(len(text), piece)
		// Do not cut within a character.
		for n < len(text) && n > piece-utf8.UTFMax && !utf8.RuneStart(text[n]) {
			n--
		}
		w.AddBytes(n)
		if out.Cap()-out.Len() < n {
			out.Grow(n) // doubles; Write would copy many times
		}
		_, _ = normal.Write([]byte(strings.Map(keep, text[:n]))) // strings.Builder does not fail
		if text = text[n:]; w.SpendSteps(n) != nil || out.Len() > longest && w.FailTooManySteps() != nil {
			return ""
		}
	}
	_ = normal.Close()
	return out.String()
}

// isASCII reports whether text has ASCII characters only. Such text is in every normal form.
func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// maxStripRounds bounds how often stripHTML repeats: removing a tag may form a new one, as in "<scr<b>ipt>".
const maxStripRounds = 8

// stripHTML returns text without tags, comments, scripts and styles. Character references stay as they are. If tags
// keep appearing after maxStripRounds, all "<" are removed.
func stripHTML(w *pattern.StepBudget, text string) string {
	if !strings.Contains(text, "<") {
		return text
	}
	// The rounds read one buffer and write the other.
	stripped, next := []byte(text), make([]byte, 0, len(text))
	for range maxStripRounds {
		size := len(stripped)
		stripped, next = stripTagsOnce(w, stripped, next[:0]), stripped
		if len(stripped) == size || bytes.IndexByte(stripped, '<') < 0 {
			return string(stripped)
		}
	}
	return strings.ReplaceAll(string(stripped), "<", "")
}

// stripTagsOnce appends text to out without what the tokenizer sees as markup. It returns nothing if the budget fails.
func stripTagsOnce(w *pattern.StepBudget, text, out []byte) []byte {
	w.AddBytes(len(text))
	z := html.NewTokenizer(bytes.NewReader(text))
	hidden := false
	for {
		kind := z.Next()
		raw := z.Raw()
		if w.SpendSteps(len(raw)) != nil {
			return nil // the budget has failed, and the check with it
		}
		switch kind {
		case html.ErrorToken:
			return append(out, raw...) // an unclosed tag is text
		case html.TextToken:
			if !hidden {
				out = append(out, raw...)
			}
			hidden = false
		// The tokenizer returns the content of these elements as one text token.
		case html.StartTagToken:
			name, _ := z.TagName()
			hidden = string(name) == "script" || string(name) == "style"
		case html.EndTagToken, html.SelfClosingTagToken, html.CommentToken, html.DoctypeToken:
			hidden = false
		}
	}
}
