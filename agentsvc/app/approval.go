package app

import (
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/tool"
)

// approval is what humans have to do with a tool's calls: programs of the host run with their consent unless the
// configuration says otherwise, everything else without.
func approval(t *config.Tool) tool.Approval {
	required := t.Type == "command"
	if t.RequireApproval != nil {
		required = *t.RequireApproval
	}
	return tool.Approval{Required: required, Prompt: t.ApprovalPrompt, Timeout: t.ApprovalTimeout}
}

// check returns what is wrong with a call whose arguments an approver has changed. A tool of one name is the same in
// every set that holds it.
func check(sets []*tool.Set) func(ctx context.Context, call agentsvc.ToolCall) error {
	return func(ctx context.Context, call agentsvc.ToolCall) error {
		for _, set := range sets {
			live, err := set.Live(ctx)
			if err == nil && live.Holds(call.Name) {
				return live.Check(call)
			}
		}
		return agentsvc.Invalid("tool", "%s is not available any more, so its arguments cannot be changed", call.Name)
	}
}
