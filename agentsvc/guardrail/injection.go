package guardrail

import (
	"fmt"
	"strings"
	"sync"

	"stoa/agentsvc"
	"stoa/agentsvc/pattern"
)

// Injection is a check of messages for attempts to override an agent's instruction: a short list of well-known phrases,
// and configured patterns. Both are also searched in the folded text (foldText), so that a disguised phrase is found.
type Injection struct {
	Rule // Block if no action is set
	// Patterns are RE2 expressions in addition to the built-in phrases.
	Patterns []string
	// CaseSensitive applies to Patterns only; the phrases never are.
	CaseSensitive bool
}

// injectionPhrases are the built-in patterns. They find copied phrases, not new ideas; docs must not promise more.
var injectionPhrases = []string{
	`\b(?:ignore|disregard|forget|override|bypass)\s+(?:(?:the|of)\s+)*(?:all|any|your|these|those|previous|prior|above|earlier|preceding)\s+` +
		`(?:(?:the|your|my|of|this|these|those|previous|prior|above|earlier|preceding)\s+){0,5}(?:instructions?|prompts?|rules|directions|guidelines|guardrails)\b`,
	`\b(?:reveal|show|print|repeat|output|display|tell\s+me|give\s+me)\s+(?:me\s+)?(?:your|the)\s+(?:full\s+|entire\s+)?(?:system|initial|hidden|original|secret)\s+(?:prompt|instructions?|message)\b`,
	`\b(?:enter|enable|activate|switch\s+to|you\s+are\s+(?:now\s+)?in)\s+(?:developer|jailbreak|god|dan|unrestricted)\s+mode\b`,
	`\b(?:pretend|act\s+as\s+if|imagine)\s+(?:that\s+)?(?:you\s+have|there\s+are)\s+no\s+(?:rules|restrictions|limits|guidelines|guardrails)\b`,
	`<\|(?:im_start|im_end|system|user|assistant|endoftext|start_header_id|end_header_id|eot_id)\|>|\[/?INST\]|<</?SYS>>`,
}

// injection is a validated [Injection]. matcher matches any phrase or pattern.
type injection struct {
	Rule
	matcher *pattern.Pattern // of the phrases and Patterns
}

// phraseList are the built-in phrases with their flags.
var phraseList = pattern.ExpressionList{Flags: "(?i)", Exprs: injectionPhrases}

// compilePhrases returns the pattern of the built-in phrases. Every guardrail without patterns of its own shares it: it
// takes 48 KB, and a document may have thousands of guardrails.
var compilePhrases = sync.OnceValues(func() (*pattern.Pattern, error) { return pattern.CompileAny(phraseList) })

// newInjection validates o and compiles all phrases and patterns into one program.
func newInjection(o *Injection) (*injection, error) {
	flags := "(?i)"
	if o.CaseSensitive {
		flags = ""
	}
	if err := checkPatterns("input.injection.patterns", o.Patterns); err != nil {
		return nil, err
	}
	matcher, err := compilePhrases()
	if len(o.Patterns) > 0 {
		matcher, err = pattern.CompileAny(phraseList, pattern.ExpressionList{Flags: flags, Exprs: o.Patterns})
	}
	if err != nil {
		return nil, newInvalidError("input.injection.patterns", "%v", err)
	}
	return &injection{o.withDefault(Block), matcher}, nil
}

// checkPatterns returns an error for a pattern that is not an RE2 expression, matches the empty text, or is too large,
// alone or together with the others.
func checkPatterns(field string, exprs []string) error {
	for i, expr := range exprs {
		// Each is checked alone first, so that the error names its index.
		at := fmt.Sprintf("%s[%d]", field, i)
		if _, err := pattern.CountInstructions(expr); err != nil {
			return newInvalidError(at, "%v", err)
		}
		if _, err := compileProgram(at, expr); err != nil {
			return err
		}
	}
	if n := pattern.SumInstructions(exprs...); n > pattern.MaxTotalInstructions {
		return newInvalidError(field, "%v", pattern.TotalSizeError(n))
	}
	return nil
}

// matchesOrFolded reports whether a pattern matches in text or in the folded text. It returns false if the budget
// fails, which the caller checks.
func (i *injection) matchesOrFolded(w *pattern.StepBudget, text string) bool {
	if i.matchesText(w, text) {
		return true
	}
	folded := foldText(w, text)
	return folded != text && i.matchesText(w, folded)
}

// matchesText reports whether a pattern matches in text. Each search adds its bytes to the budget.
func (i *injection) matchesText(w *pattern.StepBudget, text string) bool {
	w.AddBytes(len(text))
	found, _ := i.matcher.Match(w, text) // the budget keeps the error
	return found
}

// matchesParts reports whether a pattern matches in one of the texts, or in the text parts joined: a phrase may be
// split between parts.
func (i *injection) matchesParts(w *pattern.StepBudget, parts []agentsvc.Part) bool {
	for _, text := range collectTexts(parts) {
		if i.matchesOrFolded(w, text) {
			return true
		}
	}
	return i.matchesJoined(w, parts)
}

// matchesJoined reports whether a pattern matches in the text parts joined without a separator or with a space, since
// vendors' requests may join them either way.
func (i *injection) matchesJoined(w *pattern.StepBudget, parts []agentsvc.Part) bool {
	texts := listTextParts(parts)
	return len(texts) > 1 && (i.matchesOrFolded(w, strings.Join(texts, "")) || i.matchesOrFolded(w, strings.Join(texts, " ")))
}

// cleanParts returns parts with all matches replaced by removedMark. If text parts match only when joined, they are
// replaced by one joined part, before the other parts.
func (i *injection) cleanParts(w *pattern.StepBudget, parts []agentsvc.Part) []agentsvc.Part {
	removeText := func(text string) string { return i.removeMatches(w, text) }
	parts = rewriteTexts(parts, removeText)
	if !i.matchesJoined(w, parts) {
		return parts
	}
	complete := strings.Join(listTextParts(parts), "")
	if !i.matchesOrFolded(w, complete) {
		complete = strings.Join(listTextParts(parts), " ")
	}
	out := []agentsvc.Part{agentsvc.TextPart(removeText(complete))}
	for _, p := range parts {
		if p.Data != nil || p.File != nil {
			out = append(out, p)
		}
	}
	return out
}

// removeMatches returns text with all matches replaced. If a match remains in the folded text, the folded text is
// cleaned and returned.
func (i *injection) removeMatches(w *pattern.StepBudget, text string) string {
	text = i.replaceMatches(w, text)
	if folded := foldText(w, text); folded != text && i.matchesText(w, folded) {
		text = i.replaceMatches(w, folded)
	}
	return text
}

// replaceMatches returns text with the matches replaced by removedMark.
func (i *injection) replaceMatches(w *pattern.StepBudget, text string) string {
	w.AddBytes(len(text))
	text, _ = i.matcher.ReplaceAll(w, text, removedMark) // the budget keeps the error
	return text
}

// listTextParts returns the texts of the text parts, without files and data.
func listTextParts(parts []agentsvc.Part) []string {
	var texts []string
	for _, p := range parts {
		if p.Data == nil && p.File == nil {
			texts = append(texts, p.Text)
		}
	}
	return texts
}
