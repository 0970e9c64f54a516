package anthropic

import (
	"regexp"
	"strconv"

	"github.com/anthropics/anthropic-sdk-go"
)

// versionPattern finds the version in the name of a Claude, wherever gateways put that: claude-haiku-4-5,
// claude-opus-4-20250514, claude-3-7-sonnet-latest, anthropic.claude-opus-4-6-v1.
var versionPattern = regexp.MustCompile(`claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?:[-@:]|$)`)

// hasThinkingBudget reports whether a model is told how much it may think. Claude up to 4.5 knows nothing else, from 4.7 on it
// refuses a budget and decides by itself, which 4.6 can as well. A Claude without a version is a new one; what is no
// Claude only speaks its protocol, as old Claudes did.
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

var claudePattern = regexp.MustCompile(`(^|[./:])claude-`)

// thinkingConfig is how the model is asked to think.
func (p *Provider) thinkingConfig() anthropic.ThinkingConfigParamUnion {
	if hasThinkingBudget(p.opts.Model) {
		return anthropic.ThinkingConfigParamOfEnabled(p.opts.ThinkingBudget)
	}
	return anthropic.ThinkingConfigParamUnion{OfAdaptive: &anthropic.ThinkingConfigAdaptiveParam{}}
}

// thinkingEffort is what a budget comes to for a model that takes none: how hard it tries. It is empty, the model's own
// default, where no budget is set.
func (o Options) thinkingEffort() anthropic.OutputConfigEffort {
	switch {
	case !o.Thinking || o.ThinkingBudget == 0 || hasThinkingBudget(o.Model):
		return ""
	case o.ThinkingBudget <= 2048:
		return anthropic.OutputConfigEffortLow
	case o.ThinkingBudget <= 8192:
		return anthropic.OutputConfigEffortMedium
	}
	return anthropic.OutputConfigEffortHigh
}
