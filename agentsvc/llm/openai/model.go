package openai

import "regexp"

// ownModelPattern matches the names of OpenAI's own models, also behind a gateway's or a fine-tuning's prefix. Other
// models that servers offer in the same protocol, gpt-oss among them, do not match.
var ownModelPattern = regexp.MustCompile(`(?:^|[./:])(?:(?:chat)?gpt-\d|o\d(?:$|[-:@])|codex-)`)

// isOwnModel reports whether a model is one of OpenAI's own. What a request may contain depends on the model and not on
// the address: gateways pass requests on.
func isOwnModel(model string) bool { return ownModelPattern.MatchString(model) }
