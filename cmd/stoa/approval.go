package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// approval is a tool call that waits for a human.
type approval struct {
	CallID    string          `json:"call_id"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Prompt    string          `json:"prompt"`
	Agent     string          `json:"agent"`
}

// findApprovals finds the tool calls that parts ask about.
func findApprovals(parts []part) (found []approval) {
	for _, p := range parts {
		var a approval
		if json.Unmarshal(p.Data, &a) == nil && a.CallID != "" {
			found = append(found, a)
		}
	}
	return found
}

// promptForInput asks the human at the terminal for what a task waits for and returns the parts of a message that brings it:
// credentials first, decisions in a message of their own. It returns nil if the task waits for neither, or nobody
// answers: that leaves it as it is.
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

// promptForDecisions asks about the tool calls that a task waits for. After a no nothing else is asked, since it ends the task.
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

// promptYesNo asks until it is answered: "approve", "reject", or "" where nobody answers any more.
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
