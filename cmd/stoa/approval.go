package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// approval is a tool call that waits for a human's decision, as a data part of the status message shows it.
type approval struct {
	CallID    string          `json:"call_id"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Prompt    string          `json:"prompt"`
	Agent     string          `json:"agent"`
}

// findApprovals returns the approvals that parts request. A data part is one if it has a call_id; other parts are
// ignored.
func findApprovals(parts []part) (found []approval) {
	for _, p := range parts {
		var a approval
		if json.Unmarshal(p.Data, &a) == nil && a.CallID != "" {
			found = append(found, a)
		}
	}
	return found
}

// promptForInput asks the human at the terminal for what a task waits for and returns the parts of the message that
// answers it. Credentials come first; decisions are asked for in a later message. It returns nil if the task waits
// for neither, if no human is there (--json, a pipe), or if the human gives no answer; the task then stays as it is.
func (cmd *callCmd) promptForInput(ctx context.Context, c *console, show *transcript) []any {
	if !c.interactive || cmd.JSON || show.state != "input_required" && show.state != "auth_required" {
		return nil
	}
	show.endLine()
	if len(show.credentials) > 0 {
		return cmd.promptForCredentials(ctx, c, show)
	}
	return cmd.promptForDecisions(ctx, c, show)
}

// promptForDecisions asks for a decision on each tool call and returns the parts that contain them. It stops after
// the first rejection, because a rejection ends the task.
func (cmd *callCmd) promptForDecisions(ctx context.Context, c *console, show *transcript) []any {
	var parts []any
	for _, a := range show.approvals {
		whose := ""
		if a.Agent != "" {
			whose = a.Agent + ": "
		}
		decision := c.promptYesNo(ctx, fmt.Sprintf("%s%s(%s) [y/n] ", whose, a.Tool, a.Arguments))
		if decision == "" {
			return nil
		}
		parts = append(parts, map[string]any{
			"type": "data", "data": map[string]any{"type": "tool_approval", "call_id": a.CallID, "decision": decision},
		})
		if decision == "reject" {
			break
		}
	}
	return parts
}

// promptYesNo asks until the answer is yes or no. It returns "approve", "reject", or "" at the end of the input or of
// ctx.
func (c *console) promptYesNo(ctx context.Context, question string) string {
	for {
		line, ok := c.promptLine(ctx, question, false)
		switch line = strings.ToLower(line); {
		case !ok:
			return ""
		case line == "y" || line == "yes":
			return "approve"
		case line == "n" || line == "no":
			return "reject"
		}
	}
}
