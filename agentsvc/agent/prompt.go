package agent

import "strings"

// Prompt holds the parts of an [LLM] agent's system prompt other than its instruction. Empty parts are left out.
type Prompt struct {
	// System replaces all other parts, also the global text of the agents above.
	System string
	// Global precedes the instructions of this agent and of all agents below it.
	Global string
	// Role describes who the agent is, Guidance how it should work.
	Role     string
	Guidance string
}

// newSystemPrompt returns the system prompt: the global text of the agents above, then this agent's own parts in the
// order Global, Role, Instruction, Guidance, then the output format unless the request has it, separated by empty lines.
func (m *LLM) newSystemPrompt(global string) string {
	p := m.options.Prompt
	text := p.System
	if text == "" {
		text = joinParagraphs(global, p.Global, p.Role, m.options.Instruction, p.Guidance)
	}
	if m.options.Output != nil && !m.options.requestsFormat() {
		text = joinParagraphs(text, m.options.Output.format.Prompt)
	}
	return text
}

// joinParagraphs joins the non-empty texts, trimmed, with an empty line between them.
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
