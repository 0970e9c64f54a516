package agent

import "strings"

// Prompt is what makes up the system prompt of an [LLM] agent, beside its instruction.
type Prompt struct {
	System   string // replaces all the rest, also what agents above put there
	Global   string // stands before the instructions of this agent and of all below it
	Role     string // who the agent is
	Guidance string // how it should work
}

// system returns the system prompt for a turn below agents that put global before it.
func (a *LLM) system(global string) string {
	p := a.o.Prompt
	text := p.System
	if text == "" {
		text = paragraphs(global, p.Global, p.Role, a.o.Instruction, p.Guidance)
	}
	if a.o.Output != nil {
		text = paragraphs(text, a.o.Output.wish())
	}
	return text
}

// paragraphs joins those of texts that are not empty.
func paragraphs(texts ...string) string {
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
