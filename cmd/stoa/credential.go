package main

import (
	"context"
	"encoding/json"
	"fmt"
)

// credential is what a tool needs of its caller's own.
type credential struct {
	Type   string `json:"type"`
	Tool   string `json:"tool"`
	Header string `json:"header"`
	Server string `json:"server"`
}

// findCredentials finds what parts ask the caller for.
func findCredentials(parts []part) (found []credential) {
	for _, p := range parts {
		var w credential
		if json.Unmarshal(p.Data, &w) == nil && w.Type == "tool_credential" {
			found = append(found, w)
		}
	}
	return found
}

// promptForCredentials asks for the credentials that a task waits for, without showing what is typed.
func (cmd *callCmd) promptForCredentials(ctx context.Context, c *console, show *transcript) []any {
	var parts []any
	for _, w := range show.credentials {
		value, ok := c.promptLine(ctx, fmt.Sprintf("%s for %s at %s: ", w.Header, w.Tool, w.Server), true)
		if !ok || value == "" {
			return nil
		}
		parts = append(parts, map[string]any{
			"type": "data", "data": map[string]any{"type": "tool_credential", "tool": w.Tool, "value": value},
		})
	}
	return parts
}
