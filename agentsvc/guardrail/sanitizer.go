package guardrail

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/text/unicode/norm"

	"stoa/agentsvc"
	"stoa/agentsvc/pattern"
)

// Sanitizer cleans the texts of a message. It is the first of the checks: the others see what it leaves.
type Sanitizer struct {
	TrimWhitespace   bool // at both ends
	NormalizeUnicode bool // NFC, and without characters that nobody sees
	StripHTML        bool // tags, comments, scripts and styles
	MaxLength        int  // characters of all texts together, 0 = any
}

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

// truncateParts returns parts with no more than limit characters of text.
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

// dropInvisible drops the characters that hide text from people and not from models: tags, overrides of the direction, spaces
// without width. Joiners stay, which scripts and emoji need.
func dropInvisible(r rune) rune {
	switch {
	case r == 0x00AD, r == 0x200B, r == 0xFEFF, r >= 0x202A && r <= 0x202E, r >= 0x2060 && r <= 0x2069, r >= 0xE0000 && r <= 0xE007F:
		return -1
	}
	return r
}

// foldText returns text as it reads to somebody who sees neither the forms of letters nor the characters between them that
// have no shape.
func foldText(w *pattern.StepBudget, text string) string {
	return normalizeText(w, norm.NFKC, dropFormatting, text)
}

// dropFormatting drops the characters that have no shape.
func dropFormatting(r rune) rune {
	if unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Variation_Selector, r) {
		return -1
	}
	return r
}

// normalizeText returns text in a normal form, of the characters that keep lets pass. It looks at the work between pieces: where
// that fails, and where the form is far longer than the text, it returns nothing and the work has failed.
func normalizeText(w *pattern.StepBudget, form norm.Form, keep func(rune) rune, text string) string {
	if isASCII(text) {
		return text
	}
	const piece = 16 << 10
	var out strings.Builder
	normal := form.Writer(&out)
	longest := 4*len(text) + piece
	for text != "" {
		n := min(len(text), piece)
		for n < len(text) && n > piece-utf8.UTFMax && !utf8.RuneStart(text[n]) {
			n--
		}
		w.AddBytes(n)
		_, _ = normal.Write([]byte(strings.Map(keep, text[:n]))) // to a builder, which does not fail
		if text = text[n:]; w.SpendSteps(n) != nil || out.Len() > longest && w.FailTooManySteps() != nil {
			return ""
		}
	}
	_ = normal.Close()
	return out.String()
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// maxStripRounds bounds how often tags may come to light that others were wrapped around.
const maxStripRounds = 8

// stripHTML returns text without tags, comments, scripts and styles. Character references stay as they are.
func stripHTML(w *pattern.StepBudget, text string) string {
	for range maxStripRounds {
		if !strings.Contains(text, "<") {
			return text
		}
		out := stripTagsOnce(w, text)
		if out == text {
			return text
		}
		text = out
	}
	return strings.ReplaceAll(text, "<", "")
}

func stripTagsOnce(w *pattern.StepBudget, text string) string {
	w.AddBytes(len(text))
	var out strings.Builder
	z := html.NewTokenizer(strings.NewReader(text))
	hidden := false
	for {
		kind := z.Next()
		raw := string(z.Raw())
		if w.SpendSteps(len(raw)) != nil {
			return "" // the work has failed, and with it the check
		}
		switch kind {
		case html.ErrorToken:
			out.WriteString(raw) // a tag that is never closed is none
			return out.String()
		case html.TextToken:
			if !hidden {
				out.WriteString(raw)
			}
			hidden = false
		case html.StartTagToken:
			name, _ := z.TagName()
			hidden = string(name) == "script" || string(name) == "style"
		case html.EndTagToken, html.SelfClosingTagToken, html.CommentToken, html.DoctypeToken:
			hidden = false
		}
	}
}
