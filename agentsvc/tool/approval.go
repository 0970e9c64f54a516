package tool

import (
	"context"
	"time"

	"stoa/agentsvc"
)

// ApprovalOptions are a tool's configured rules for human approval.
type ApprovalOptions struct {
	// Required makes each call wait for a human's decision.
	Required bool
	// Prompt is the question to the human, "" = a default.
	Prompt string
	// Timeout is how long the decision is waited for, 0 = without limit.
	Timeout time.Duration
}

// ApprovalFor returns the approval rules of a tool. A tool that is not in the set needs no approval: its call fails.
func (s *Set) ApprovalFor(name string) ApprovalOptions {
	t, _ := s.tools[name].Tool.(configuredTool)
	return t.settings.Approval
}

// HasTool reports whether the set has a tool with this name.
func (s *Set) HasTool(name string) bool {
	_, ok := s.tools[name]
	return ok
}

// CheckCall returns an error with [agentsvc.CodeInvalid] if the call cannot run: the tool is not in the set, or its
// arguments do not fit. It has no effect, so it can be used before a human is asked and for arguments that an approver
// changed.
func (s *Set) CheckCall(ctx context.Context, call agentsvc.ToolCall) error {
	t, ok := s.tools[call.Name]
	if !ok {
		return agentsvc.NewInvalidError("tool", "%v", s.unknownToolError(call.Name))
	}
	args := call.Arguments
	if len(args) == 0 {
		args = []byte("{}")
	}
	if err := t.schema.checkArguments(ctx, args); err != nil {
		return agentsvc.NewInvalidError("arguments", "%v", err)
	}
	return nil
}
