package tool

import (
	"context"
	"time"

	"stoa/agentsvc"
)

// ApprovalOptions says what humans have to do with a tool's calls.
type ApprovalOptions struct {
	Required bool          // each call waits until somebody agrees
	Prompt   string        // what that human is asked, "" = nothing of its own
	Timeout  time.Duration // after which it is too late, 0 = never
}

// ApprovalFor returns what a human has to do with the call of a tool. A tool that the set does not hold needs nobody.
func (s *Set) ApprovalFor(name string) ApprovalOptions {
	t, _ := s.tools[name].Tool.(configuredTool)
	return t.settings.Approval
}

// HasTool reports whether the set has a tool of this name.
func (s *Set) HasTool(name string) bool {
	_, ok := s.tools[name]
	return ok
}

// CheckCall returns what is wrong with a call before anybody runs it, as an [agentsvc.InvalidError]: its arguments do not
// fit, or the set does not hold the tool.
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
