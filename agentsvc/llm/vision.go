package llm

import (
	"regexp"
	"slices"
)

// visionPatterns match the names of the models that read images, by provider, also behind a gateway's prefix. A model
// that is not known to read any is taken for one that does not: its vendor would refuse the request.
var visionPatterns = map[string]*regexp.Regexp{
	// All from Claude 3 on: only claude-1, claude-2 and claude-instant read none.
	"anthropic": regexp.MustCompile(`(?:^|[./:])claude-[a-hj-z3-9]`),
	"gemini":    regexp.MustCompile(`(?:^|[./:])gemini-`),
	// GPT from 4 Turbo on, and the reasoning models other than the first small ones.
	"openai": regexp.MustCompile(`(?:^|[./:])(?:(?:chat)?gpt-(?:4o|4\.|4-turbo|[5-9]|\d\d)|o1(?:$|-\d|-pro)|o3(?:$|-\d|-pro)|o[4-9]|codex-)`),
	// The families of Ollama's library that are tagged "vision".
	"ollama": regexp.MustCompile(`(?:^|[/])(?:llava|bakllava|moondream|minicpm-v|gemma[34]|llama3\.2-vision|llama4|qwen2\.5vl|qwen3-vl|mistral-small3|granite3\.2-vision)`),
}

// ImageTypesOf returns the media types of the images that a provider's model reads, none if it reads none or is
// unknown.
func ImageTypesOf(provider, model string) []string {
	if p := visionPatterns[provider]; p == nil || !p.MatchString(model) {
		return nil
	}
	return slices.Clone(imageTypes)
}
