package main

import (
	"context"
	"encoding/json"
	"fmt"
)

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
