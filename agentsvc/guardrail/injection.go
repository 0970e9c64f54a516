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

// phrases are the built-in patterns. They find what has been copied, not what has been thought of.
var phrases = []string{
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
	matcher, err := pattern.Any(pattern.List{Flags: "(?i)", Exprs: phrases}, pattern.List{Flags: flags, Exprs: o.Patterns})
	if err != nil {
		return nil, invalid("input.injection.patterns", "%v", err)
	}
	return &injection{o.orDefault(Block), matcher}, nil
}

// checkPatterns refuses patterns that are no expressions, that strike everywhere, or that are too large alone or together.
func checkPatterns(field string, exprs []string) error {
	for i, expr := range exprs {
		// Each is looked at alone first, so that what is wrong is told of it and not of all.
		at := fmt.Sprintf("%s[%d]", field, i)
		if _, err := pattern.Size(expr); err != nil {
			return invalid(at, "%v", err)
		}
		if _, err := compile(at, expr); err != nil {
			return err
		}
	}
	if n := pattern.Sum(exprs...); n > pattern.MaxTotal {
		return invalid(field, "%v", pattern.TooMany(n))
	}
	return nil
}

// strikes reports whether text holds one of the patterns, as it stands or folded. Where the work fails it reports false.
func (i *injection) strikes(w *pattern.Work, text string) bool {
	if i.matches(w, text) {
		return true
	}
	folded := fold(w, text)
	return folded != text && i.matches(w, folded)
}

func (i *injection) matches(w *pattern.Work, text string) bool {
	w.Grow(len(text))
	found, _ := i.matcher.Match(w, text) // the error stays in the work
	return found
}

// anywhere reports whether one of the texts of parts strikes, or the text parts do when they are read in one go.
func (i *injection) anywhere(w *pattern.Work, parts []agentsvc.Part) bool {
	for _, text := range textsOf(parts) {
		if i.strikes(w, text) {
			return true
		}
	}
	return i.together(w, parts)
}

func (i *injection) together(w *pattern.Work, parts []agentsvc.Part) bool {
	spoken := spokenOf(parts)
	return len(spoken) > 1 && (i.strikes(w, strings.Join(spoken, "")) || i.strikes(w, strings.Join(spoken, " ")))
}

// clean returns parts without what strikes. Text parts that strike only together become one.
func (i *injection) clean(w *pattern.Work, parts []agentsvc.Part) []agentsvc.Part {
	take := func(text string) string { return i.take(w, text) }
	parts = rewrite(parts, take)
	if !i.together(w, parts) {
		return parts
	}
	whole := strings.Join(spokenOf(parts), "")
	if !i.strikes(w, whole) {
		whole = strings.Join(spokenOf(parts), " ")
	}
	out := []agentsvc.Part{agentsvc.TextPart(take(whole))}
	for _, p := range parts {
		if p.Data != nil || p.File != nil {
			out = append(out, p)
		}
	}
	return out
}

// take returns text without what strikes. Where that shows only in the folded text, that is what is left.
func (i *injection) take(w *pattern.Work, text string) string {
	text = i.replaced(w, text)
	if folded := fold(w, text); folded != text && i.matches(w, folded) {
		text = i.replaced(w, folded)
	}
	return text
}

func (i *injection) replaced(w *pattern.Work, text string) string {
	w.Grow(len(text))
	text, _ = i.matcher.ReplaceAll(w, text, removed) // the error stays in the work
	return text
}

// spokenOf returns the text parts.
func spokenOf(parts []agentsvc.Part) []string {
	var texts []string
	for _, p := range parts {
		if p.Data == nil && p.File == nil {
			texts = append(texts, p.Text)
		}
	}
	return texts
}
