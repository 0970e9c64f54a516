package app

import (
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/tool"
)

// approval is what humans have to do with a tool's calls.
func approval(t *config.Tool) tool.Approval {
	return tool.Approval{Required: t.NeedsApproval(), Prompt: t.ApprovalPrompt, Timeout: t.ApprovalTimeout}
}

// check returns what is wrong with a call whose arguments an approver has changed. A tool of one name is the same in
// every set that holds it.
func check(sets []*tool.Set) func(ctx context.Context, call agentsvc.ToolCall) error {
	return func(ctx context.Context, call agentsvc.ToolCall) error {
		for _, set := range sets {
			live, err := set.Live(ctx)
			if err == nil && live.Holds(call.Name) {
				return live.Check(ctx, call)
			}
		}
		return agentsvc.Invalid("tool", "%s is not available any more, so its arguments cannot be changed", call.Name)
	}
}
