package anthropic

import (
	"regexp"
	"strconv"
)

// versionPattern matches the version in a Claude model's name, also where gateways decorate it: claude-haiku-4-5,
// claude-opus-4-20250514, claude-3-7-sonnet-latest, anthropic.claude-opus-4-6-v1.
var versionPattern = regexp.MustCompile(`claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?:[-@:]|$)`)

// hasThinkingBudget reports whether the model accepts a budget for thinking. Claude up to 4.5 requires one; 4.6 accepts
// both forms; from 4.7 on it refuses a budget and decides itself. A Claude name without a version is treated as new;
// another name is a model behind the same protocol and treated like an old Claude.
func hasThinkingBudget(model string) bool {
	if !claudePattern.MatchString(model) {
		return true
	}
	v := versionPattern.FindStringSubmatch(model)
	if v == nil {
		return false
	}
	major, _ := strconv.Atoi(v[1])
	minor, _ := strconv.Atoi(v[2])
	return major < 4 || major == 4 && minor < 6
}

// hasOutputMode reports whether the model takes a JSON Schema for its answer: Claude from 4.5 on. A Claude name without a
// version is treated as new; another name is a model behind the same protocol, which may have no such mode.
func hasOutputMode(model string) bool {
	v := versionPattern.FindStringSubmatch(model)
	if v == nil {
		return claudePattern.MatchString(model)
	}
	major, _ := strconv.Atoi(v[1])
	minor, _ := strconv.Atoi(v[2])
	return major > 4 || major == 4 && minor >= 5
}

// claudePattern matches the names of Claude models, with or without a gateway's prefix.
var claudePattern = regexp.MustCompile(`(^|[./:])claude-`)

// thinkingConfig returns the thinking parameter in the form that the model accepts.
func (p *Provider) thinkingConfig() *thinkingConfig {
	if hasThinkingBudget(p.opts.Model) {
		return &thinkingConfig{Type: "enabled", BudgetTokens: p.opts.ThinkingBudget}
	}
	return &thinkingConfig{Type: "adaptive"}
}

// thinkingEffort returns the effort that replaces the thinking budget for a model that accepts none; "", the model's
// default, if there is no budget.
func (o Options) thinkingEffort() string {
	switch {
	case !o.Thinking || o.ThinkingBudget == 0 || hasThinkingBudget(o.Model):
		return ""
	case o.ThinkingBudget <= 2048:
		return "low"
	case o.ThinkingBudget <= 8192:
		return "medium"
	}
	return "high"
}
