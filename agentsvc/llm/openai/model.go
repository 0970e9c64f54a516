package openai

import (
	"regexp"

	"stoa/agentsvc/llm"
)

// ownModelPattern matches the names of OpenAI's own models, also behind a gateway's or a fine-tuning's prefix. Other
// models that servers offer in the same protocol, gpt-oss among them, do not match.
var ownModelPattern = regexp.MustCompile(`(?:^|[./:])(?:(?:chat)?gpt-\d|o\d(?:$|[-:@])|codex-)`)

// outputModePattern matches the names of OpenAI's models that take a JSON Schema for their answer: from GPT-4o on, and the
// reasoning models other than the first small ones. Servers of other models may ignore or refuse one.
var outputModePattern = regexp.MustCompile(`(?:^|[./:])(?:gpt-(?:4o|4\.|[5-9]|\d\d)|o1(?:$|-\d|-pro)|o[3-9](?:$|[-:@])|codex-)`)

// hasOutputMode reports whether the request's format is sent as such; otherwise the system prompt describes it. The
// mode takes objects only.
func (p *Provider) hasOutputMode(req llm.Request) bool {
	return req.Output.IsObject() && outputModePattern.MatchString(p.opts.Model)
}

// isOwnModel reports whether a model is one of OpenAI's own. What a request may contain depends on the model and not on
// the address: gateways pass requests on.
func isOwnModel(model string) bool { return ownModelPattern.MatchString(model) }
