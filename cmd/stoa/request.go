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

// promptForRequests asks for the credentials and decisions that the task waits for and returns the parts of the message
// that has them. Credentials come first; decisions are asked for in a later message. It returns nil if the task waits for
// neither, if the conversation does not ask, or if one is not given; the task then stays as it is.
func (v *conversation) promptForRequests(ctx context.Context) []any {
	if !v.asks || !v.shown.waitsForInput() {
		return nil
	}
	v.shown.endLine()
	if len(v.shown.credentials) > 0 {
		return v.promptForCredentials(ctx)
	}
	return v.promptForDecisions(ctx)
}

// promptForDecisions asks for a decision on each tool call and returns the parts that contain them. It stops after
// the first rejection, because a rejection ends the task.
func (v *conversation) promptForDecisions(ctx context.Context) []any {
	var parts []any
	for _, a := range v.shown.approvals {
		decision := v.console.promptYesNo(ctx, a.describe()+" [y/n] ")
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

// describe returns the call with its arguments, after the agent that made it if that is a nested one.
func (a approval) describe() string {
	whose := ""
	if a.Agent != "" {
		whose = a.Agent + ": "
	}
	return fmt.Sprintf("%s%s(%s)", whose, a.Tool, a.Arguments)
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

// credential is a request for a secret of the caller's own that a tool needs, as a data part shows it.
type credential struct {
	Type   string `json:"type"`
	Tool   string `json:"tool"`
	Header string `json:"header"` // in which the tool sends the secret
	Server string `json:"server"` // that receives it, shown so that the human can decide
}

// findCredentials returns the credentials that parts request.
func findCredentials(parts []part) (found []credential) {
	for _, p := range parts {
		var w credential
		if json.Unmarshal(p.Data, &w) == nil && w.Type == "tool_credential" {
			found = append(found, w)
		}
	}
	return found
}

// findBudget returns the name of the budget that a task waits for by a data part of its status, "" if it waits for none.
// Such a task continues by itself.
func findBudget(parts []part) string {
	for _, p := range parts {
		var w struct {
			Type   string `json:"type"`
			Budget string `json:"budget"`
		}
		if json.Unmarshal(p.Data, &w) == nil && w.Type == "budget" {
			return w.Budget
		}
	}
	return ""
}

// promptForCredentials asks for the credentials that a task waits for, without echo, and returns the parts that
// contain them. It returns nil if one is not given.
func (v *conversation) promptForCredentials(ctx context.Context) []any {
	var parts []any
	for _, w := range v.shown.credentials {
		value, ok := v.console.promptLine(ctx, fmt.Sprintf("%s for %s at %s: ", w.Header, w.Tool, w.Server), true)
		// One missing credential leaves the whole task waiting.
		if !ok || value == "" {
			return nil
		}
		parts = append(parts, map[string]any{
			"type": "data", "data": map[string]any{"type": "tool_credential", "tool": w.Tool, "value": value},
		})
	}
	return parts
}
