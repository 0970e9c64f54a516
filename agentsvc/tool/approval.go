package tool

import (
	"context"
	"time"

	"stoa/agentsvc"
)

// Approval says what humans have to do with a tool's calls.
type Approval struct {
	Required bool          // each call waits until somebody agrees
	Prompt   string        // what that human is asked, "" = nothing of its own
	Timeout  time.Duration // after which it is too late, 0 = never
}

// Approval returns what a human has to do with the call of a tool. A tool that the set does not hold needs nobody.
func (s *Set) Approval(name string) Approval {
	t, _ := s.tools[name].Tool.(settled)
	return t.settings.Approval
}

// Holds reports whether the set has a tool of this name.
func (s *Set) Holds(name string) bool {
	_, ok := s.tools[name]
	return ok
}

// Check returns what is wrong with a call before anybody runs it, as an [agentsvc.InvalidError]: its arguments do not
// fit, or the set does not hold the tool.
func (s *Set) Check(ctx context.Context, call agentsvc.ToolCall) error {
	t, ok := s.tools[call.Name]
	if !ok {
		return agentsvc.Invalid("tool", "%v", s.unknown(call.Name))
	}
	args := call.Arguments
	if len(args) == 0 {
		args = []byte("{}")
	}
	if err := t.args.check(ctx, args); err != nil {
		return agentsvc.Invalid("arguments", "%v", err)
	}
	return nil
}
