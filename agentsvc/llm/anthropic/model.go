package anthropic

import (
	"regexp"
	"strconv"

	"github.com/anthropics/anthropic-sdk-go"
)

// generation finds the version in the name of a Claude, wherever gateways put that: claude-haiku-4-5,
// claude-opus-4-20250514, claude-3-7-sonnet-latest, anthropic.claude-opus-4-6-v1.
var generation = regexp.MustCompile(`claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?:[-@:]|$)`)

// budgeted reports whether a model is told how much it may think. Claude up to 4.5 knows nothing else, from 4.7 on it
// refuses a budget and decides by itself, which 4.6 can as well. A Claude without a version is a new one; what is no
// Claude only speaks its protocol, as old Claudes did.
func budgeted(model string) bool {
	if !claude.MatchString(model) {
		return true
	}
	v := generation.FindStringSubmatch(model)
	if v == nil {
		return false
	}
	major, _ := strconv.Atoi(v[1])
	minor, _ := strconv.Atoi(v[2])
	return major < 4 || major == 4 && minor < 6
}

var claude = regexp.MustCompile(`(^|[./:])claude-`)

// thinking is how the model is asked to think.
func (p *Provider) thinking() anthropic.ThinkingConfigParamUnion {
	if budgeted(p.opts.Model) {
		return anthropic.ThinkingConfigParamOfEnabled(p.opts.ThinkingBudget)
	}
	return anthropic.ThinkingConfigParamUnion{OfAdaptive: &anthropic.ThinkingConfigAdaptiveParam{}}
}

// effort is what a budget comes to for a model that takes none: how hard it tries. It is empty, the model's own
// default, where no budget is set.
func (o Options) effort() anthropic.OutputConfigEffort {
	switch {
	case !o.Thinking || o.ThinkingBudget == 0 || budgeted(o.Model):
		return ""
	case o.ThinkingBudget <= 2048:
		return anthropic.OutputConfigEffortLow
	case o.ThinkingBudget <= 8192:
		return anthropic.OutputConfigEffortMedium
	}
	return anthropic.OutputConfigEffortHigh
}
