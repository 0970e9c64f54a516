package main

import (
	"bufio"
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

// approvals finds the tool calls that parts ask about.
func approvals(parts []part) (found []approval) {
	for _, p := range parts {
		var a approval
		if json.Unmarshal(p.Data, &a) == nil && a.CallID != "" {
			found = append(found, a)
		}
	}
	return found
}

// decide asks the human at the terminal about the tool calls that a task waits for and returns the parts of a message
// that tells the answers. It returns nil if there is nothing to decide, or nobody to decide it: that leaves the task as
// it is. After a no nothing else is asked, since it ends the task.
func (cmd *callCmd) decide(ctx context.Context, c *console, show *transcript) []any {
	if !c.prompts || cmd.JSON || show.state != "input_required" {
		return nil
	}
	show.newline()
	var parts []any
	for _, a := range show.waiting {
		decision := c.yesOrNo(ctx, fmt.Sprintf("%s(%s) [y/n] ", a.Tool, a.Arguments))
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

// yesOrNo asks until it is answered: "approve", "reject", or "" where nobody answers any more.
func (c *console) yesOrNo(ctx context.Context, question string) string {
	if c.lines == nil {
		c.lines = bufio.NewReader(c.in)
	}
	for {
		fmt.Fprint(c.err, clean(question))
		answer := make(chan string, 1)
		go func() {
			line, err := c.lines.ReadString('\n')
			if err != nil && line == "" {
				close(answer)
				return
			}
			answer <- strings.ToLower(strings.TrimSpace(line))
		}()
		select {
		case <-ctx.Done():
			return ""
		case line, ok := <-answer:
			switch {
			case !ok:
				return ""
			case line == "y" || line == "yes":
				return "approve"
			case line == "n" || line == "no":
				return "reject"
			}
		}
	}
}
