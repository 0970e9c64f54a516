package runtime

import (
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/pattern"
	"stoa/agentsvc/session"
)

// How many tokens a vendor may report beyond the bytes that were sent and received, where every token is at least one
// byte.
const (
	// maxHiddenInput is for the words that a vendor adds around a request.
	maxHiddenInput = 4 << 10
	// maxHiddenFile is for each file, whose tokens do not follow from its bytes.
	maxHiddenFile = 1 << 20
	// maxHiddenOutput is for reasoning that is not sent, if max_tokens does not bound it.
	maxHiddenOutput = 128 << 10
	// maxHiddenScript is for the script of a tenant's app; a script has no reasoning.
	maxHiddenScript = 4 << 10
)

// clampUsage returns the usage u that the model reported for c, limited to what c can have used at most. If u was
// beyond that it is logged and marked as estimated. Only the operator's own scripted model may report anything: a
// tenant could otherwise exhaust the platform's budgets by a model server that reports false usage.
func (c *meteredCall) clampUsage(ctx context.Context, u agentsvc.Usage) agentsvc.Usage {
	// The common case: no bound needs to be computed.
	if c.trustsUsage || u.InputTokens <= maxHiddenInput && u.OutputTokens <= c.receivedBytes {
		return u
	}
	input, output := c.maxInput(), max(c.receivedBytes, c.req.TokenLimit(c.configuredMaxOutput))
	switch {
	case c.provider == "scripted":
		output = c.receivedBytes + maxHiddenScript
	case c.req.TokenLimit(c.configuredMaxOutput) == 0:
		output += maxHiddenOutput
	}
	if u.InputTokens <= input && u.OutputTokens <= output {
		return u
	}
	c.log.WarnContext(ctx, "a model's server reported more usage than a call can have: only the possible part is counted", "provider", c.provider, "model", c.model,
		"input_tokens", u.InputTokens, "most_input_tokens", input, "output_tokens", u.OutputTokens, "most_output_tokens", output)
	u.Estimated = true
	u.InputTokens, u.OutputTokens = min(u.InputTokens, input), min(u.OutputTokens, output)
	u.CacheReadTokens = min(u.CacheReadTokens, u.InputTokens)
	u.CacheWriteTokens = min(u.CacheWriteTokens, u.InputTokens-u.CacheReadTokens)
	u.ReasoningTokens = min(u.ReasoningTokens, u.OutputTokens)
	return u
}

// maxInput returns the largest number of tokens that the call can have sent.
func (c *meteredCall) maxInput() int64 {
	n := int64(maxHiddenInput + session.CountRequest(nil, func(_ *pattern.StepBudget, text string) int { return len(text) }, c.req))
	for _, e := range c.req.Conversation {
		if e.Message == nil {
			continue
		}
		for _, p := range e.Message.Parts {
			if p.File != nil {
				n += maxHiddenFile
			}
		}
	}
	return n
}
