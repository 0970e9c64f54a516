package app

import (
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/session"
)

// Of what a vendor may say a call has used beyond what went over the wire, where a token is a byte at least.
const (
	maxHiddenInput  = 4 << 10   // tokens of words that it puts around a request
	maxHiddenFile   = 1 << 20   // tokens that it makes of a file
	maxHiddenOutput = 128 << 10 // tokens of thoughts that it keeps to itself, where max_tokens does not bound them
	maxHiddenScript = 4 << 10   // tokens that the script of a tenant's app may say it has put out; a script has no thoughts
)

// clampUsage returns u, what the model says that c has used, held to what c can have used at most. What was beyond that is
// logged, and u counts as estimated. The operator's own scripted model uses what its script says; a tenant's is held to what
// went over the wire as any other, since platform budgets are for all tenants.
func (c *meteredCall) clampUsage(ctx context.Context, u agentsvc.Usage) agentsvc.Usage {
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
	c.log.WarnContext(ctx, "a model's server says that a call has used more than it can have: that much and no more is counted", "provider", c.provider, "model", c.model,
		"input_tokens", u.InputTokens, "most_input_tokens", input, "output_tokens", u.OutputTokens, "most_output_tokens", output)
	u.Estimated = true
	u.InputTokens, u.OutputTokens = min(u.InputTokens, input), min(u.OutputTokens, output)
	u.CacheReadTokens = min(u.CacheReadTokens, u.InputTokens)
	u.CacheWriteTokens = min(u.CacheWriteTokens, u.InputTokens-u.CacheReadTokens)
	u.ReasoningTokens = min(u.ReasoningTokens, u.OutputTokens)
	return u
}

// maxInput is the most tokens that the call can have sent.
func (c *meteredCall) maxInput() int64 {
	n := int64(maxHiddenInput + session.CountRequest(func(text string) int { return len(text) }, c.req))
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
