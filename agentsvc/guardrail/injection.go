package guardrail

import (
	"fmt"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/pattern"
)

// Injection looks for attempts to override an agent's instruction: by a short list of well-known phrases, and by
// patterns of one's own.
type Injection struct {
	Rule                   // Block if no action is set
	Patterns      []string // RE2 expressions
	CaseSensitive bool     // of Patterns
}

// injectionPhrases are the built-in patterns. They find what has been copied, not what has been thought of.
var injectionPhrases = []string{
	`\b(?:ignore|disregard|forget|override|bypass)\s+(?:(?:the|of)\s+)*(?:all|any|your|these|those|previous|prior|above|earlier|preceding)\s+` +
		`(?:(?:the|your|my|of|this|these|those|previous|prior|above|earlier|preceding)\s+){0,5}(?:instructions?|prompts?|rules|directions|guidelines|guardrails)\b`,
	`\b(?:reveal|show|print|repeat|output|display|tell\s+me|give\s+me)\s+(?:me\s+)?(?:your|the)\s+(?:full\s+|entire\s+)?(?:system|initial|hidden|original|secret)\s+(?:prompt|instructions?|message)\b`,
	`\b(?:enter|enable|activate|switch\s+to|you\s+are\s+(?:now\s+)?in)\s+(?:developer|jailbreak|god|dan|unrestricted)\s+mode\b`,
	`\b(?:pretend|act\s+as\s+if|imagine)\s+(?:that\s+)?(?:you\s+have|there\s+are)\s+no\s+(?:rules|restrictions|limits|guidelines|guardrails)\b`,
	`<\|(?:im_start|im_end|system|user|assistant|endoftext|start_header_id|end_header_id|eot_id)\|>|\[/?INST\]|<</?SYS>>`,
}

// injection is an [Injection] that was checked.
type injection struct {
	Rule
	matcher *pattern.Pattern // of the phrases and the patterns
}

func newInjection(o *Injection) (*injection, error) {
	flags := "(?i)"
	if o.CaseSensitive {
		flags = ""
	}
	if err := checkPatterns("input.injection.patterns", o.Patterns); err != nil {
		return nil, err
	}
	matcher, err := pattern.CompileAny(pattern.ExpressionList{Flags: "(?i)", Exprs: injectionPhrases}, pattern.ExpressionList{Flags: flags, Exprs: o.Patterns})
	if err != nil {
		return nil, newInvalidError("input.injection.patterns", "%v", err)
	}
	return &injection{o.withDefault(Block), matcher}, nil
}

// checkPatterns refuses patterns that are no expressions, that strike everywhere, or that are too large alone or together.
func checkPatterns(field string, exprs []string) error {
	for i, expr := range exprs {
		// Each is looked at alone first, so that what is wrong is told of it and not of all.
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

// matchesOrFolded reports whether text holds one of the patterns, as it stands or folded. Where the work fails it reports false.
func (i *injection) matchesOrFolded(w *pattern.StepBudget, text string) bool {
	if i.matchesText(w, text) {
		return true
	}
	folded := foldText(w, text)
	return folded != text && i.matchesText(w, folded)
}

func (i *injection) matchesText(w *pattern.StepBudget, text string) bool {
	w.AddBytes(len(text))
	found, _ := i.matcher.Match(w, text) // the error stays in the work
	return found
}

// matchesParts reports whether one of the texts of parts strikes, or the text parts do when they are read in one go.
func (i *injection) matchesParts(w *pattern.StepBudget, parts []agentsvc.Part) bool {
	for _, text := range collectTexts(parts) {
		if i.matchesOrFolded(w, text) {
			return true
		}
	}
	return i.matchesJoined(w, parts)
}

func (i *injection) matchesJoined(w *pattern.StepBudget, parts []agentsvc.Part) bool {
	texts := listTextParts(parts)
	return len(texts) > 1 && (i.matchesOrFolded(w, strings.Join(texts, "")) || i.matchesOrFolded(w, strings.Join(texts, " ")))
}

// cleanParts returns parts without what strikes. Text parts that strike only together become one.
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

// removeMatches returns text without what strikes. Where that shows only in the folded text, that is what is left.
func (i *injection) removeMatches(w *pattern.StepBudget, text string) string {
	text = i.replaceMatches(w, text)
	if folded := foldText(w, text); folded != text && i.matchesText(w, folded) {
		text = i.replaceMatches(w, folded)
	}
	return text
}

func (i *injection) replaceMatches(w *pattern.StepBudget, text string) string {
	w.AddBytes(len(text))
	text, _ = i.matcher.ReplaceAll(w, text, removedMark) // the error stays in the work
	return text
}

// listTextParts returns the text parts.
func listTextParts(parts []agentsvc.Part) []string {
	var texts []string
	for _, p := range parts {
		if p.Data == nil && p.File == nil {
			texts = append(texts, p.Text)
		}
	}
	return texts
}
