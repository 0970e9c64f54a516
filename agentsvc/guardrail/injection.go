package guardrail

import (
	"fmt"
	"regexp"
	"strings"

	"stoa/agentsvc"
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
	re *regexp.Regexp
}

func newInjection(o *Injection) (*injection, error) {
	flags := "(?i)"
	if o.CaseSensitive {
		flags = ""
	}
	for i, p := range o.Patterns {
		if _, err := compile(fmt.Sprintf("input.injection.patterns[%d]", i), p); err != nil {
			return nil, err
		}
	}
	expr := anyOf("(?i)", phrases)
	if len(o.Patterns) > 0 {
		expr += "|" + anyOf(flags, o.Patterns)
	}
	if _, err := compile("input.injection.patterns", expr); err != nil {
		return nil, err
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, invalid("input.injection.patterns", "are no RE2 expressions: %v", err)
	}
	return &injection{o.orDefault(Block), re}, nil
}

// strikes reports whether text holds one of the patterns, as it stands or folded.
func (i *injection) strikes(text string) bool {
	if i.re.MatchString(text) {
		return true
	}
	folded := fold(text)
	return folded != text && i.re.MatchString(folded)
}

// anywhere reports whether one of the texts of parts strikes, or the text parts do when they are read in one go.
func (i *injection) anywhere(parts []agentsvc.Part) bool {
	for _, text := range textsOf(parts) {
		if i.strikes(text) {
			return true
		}
	}
	return i.together(parts)
}

func (i *injection) together(parts []agentsvc.Part) bool {
	spoken := spokenOf(parts)
	return len(spoken) > 1 && (i.strikes(strings.Join(spoken, "")) || i.strikes(strings.Join(spoken, " ")))
}

// clean returns parts without what strikes. Text parts that strike only together become one.
func (i *injection) clean(parts []agentsvc.Part) []agentsvc.Part {
	parts = rewrite(parts, i.take)
	if !i.together(parts) {
		return parts
	}
	whole := strings.Join(spokenOf(parts), "")
	if !i.strikes(whole) {
		whole = strings.Join(spokenOf(parts), " ")
	}
	out := []agentsvc.Part{agentsvc.TextPart(i.take(whole))}
	for _, p := range parts {
		if p.Data != nil || p.File != nil {
			out = append(out, p)
		}
	}
	return out
}

// take returns text without what strikes. Where that shows only in the folded text, that is what is left.
func (i *injection) take(text string) string {
	text = i.re.ReplaceAllLiteralString(text, removed)
	if folded := fold(text); folded != text && i.re.MatchString(folded) {
		text = i.re.ReplaceAllLiteralString(folded, removed)
	}
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
