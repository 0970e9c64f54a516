package runtime

import (
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/tool"
)

// approvalOptions returns whether calls of a tool wait for an approval, and with which prompt and timeout.
func approvalOptions(t *config.Tool) tool.ApprovalOptions {
	return tool.ApprovalOptions{Required: t.NeedsApproval(), Prompt: t.ApprovalPrompt, Timeout: t.ApprovalTimeout}
}

// newArgumentCheck returns a function that validates a call whose arguments an approver has changed. It uses the first
// set that has the tool: a name means the same tool in every set. If no set has it any more the error is an
// [agentsvc.CodeInvalid].
func newArgumentCheck(sets []*tool.Set) func(ctx context.Context, session agentsvc.SessionKey, call agentsvc.ToolCall) error {
	return func(ctx context.Context, session agentsvc.SessionKey, call agentsvc.ToolCall) error {
		for _, set := range sets {
			live, err := set.LoadLiveSet(ctx, session)
			if err == nil && live.HasTool(call.Name) {
				return live.CheckCall(ctx, call)
			}
		}
		return agentsvc.NewInvalidError("tool", "%s is not available any more, so its arguments cannot be changed", call.Name)
	}
}
