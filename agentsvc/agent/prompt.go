package agent

import "strings"

// Prompt is what makes up the system prompt of an [LLM] agent, beside its instruction.
type Prompt struct {
	System   string // replaces all the rest, also what agents above put there
	Global   string // stands before the instructions of this agent and of all below it
	Role     string // who the agent is
	Guidance string // how it should work
}

// newSystemPrompt returns the system prompt for a turn below agents that put global before it.
func (a *LLM) newSystemPrompt(global string) string {
	p := a.options.Prompt
	text := p.System
	if text == "" {
		text = joinParagraphs(global, p.Global, p.Role, a.options.Instruction, p.Guidance)
	}
	if a.options.Output != nil {
		text = joinParagraphs(text, a.options.Output.describeFormat())
	}
	return text
}

// joinParagraphs joins those of texts that are not empty.
func joinParagraphs(texts ...string) string {
	var b strings.Builder
	for _, text := range texts {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(text)
	}
	return b.String()
}
