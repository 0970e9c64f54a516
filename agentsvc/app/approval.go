package app

import (
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/tool"
)

// approvalOptions is what humans have to do with a tool's calls.
func approvalOptions(t *config.Tool) tool.ApprovalOptions {
	return tool.ApprovalOptions{Required: t.NeedsApproval(), Prompt: t.ApprovalPrompt, Timeout: t.ApprovalTimeout}
}

// newArgumentCheck returns what is wrong with a call whose arguments an approver has changed. A tool of one name is the same in
// every set that holds it.
func newArgumentCheck(sets []*tool.Set) func(ctx context.Context, call agentsvc.ToolCall) error {
	return func(ctx context.Context, call agentsvc.ToolCall) error {
		for _, set := range sets {
			live, err := set.LoadLiveSet(ctx)
			if err == nil && live.HasTool(call.Name) {
				return live.CheckCall(ctx, call)
			}
		}
		return agentsvc.NewInvalidError("tool", "%s is not available any more, so its arguments cannot be changed", call.Name)
	}
}
