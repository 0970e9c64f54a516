package upstream

import (
	"encoding/json"
	"slices"
	"strings"

	"stoa/agentsvc"
)

// Text returns the text of parts, data as JSON. Files are left out.
func Text(parts ...agentsvc.Part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
		if p.Data != nil {
			// A value that came from JSON goes back to it.
			text, _ := json.Marshal(p.Data.Value)
			b.Write(text)
		}
	}
	return b.String()
}

// HasFile reports whether one of parts is a file.
func HasFile(parts []agentsvc.Part) bool {
	return slices.ContainsFunc(parts, func(p agentsvc.Part) bool { return p.File != nil })
}

// Parameters returns the schema of a tool's parameters, that of an object without properties where it has none.
func Parameters(spec agentsvc.ToolSpec) (map[string]any, error) {
	if len(spec.Parameters) == 0 {
		return map[string]any{"type": "object", "properties": map[string]any{}}, nil
	}
	var schema map[string]any
	if err := json.Unmarshal(spec.Parameters, &schema); err != nil || schema == nil {
		return nil, agentsvc.Invalid(spec.Name+".parameters", "are no JSON object")
	}
	return schema, nil
}

// Arguments returns a call's arguments as an object, an empty one where they are none.
func Arguments(call agentsvc.ToolCall) map[string]any {
	args := map[string]any{}
	if json.Unmarshal(call.Arguments, &args) != nil || args == nil {
		return map[string]any{}
	}
	return args
}

// Seal marks a thought as the vendor's own, so that no other vendor is sent it.
func Seal(vendor, thought string) string { return vendor + ":" + thought }

// Unseal returns the thought that came with a call, if it is this vendor's.
func Unseal(vendor string, call agentsvc.ToolCall) (string, bool) {
	return strings.CutPrefix(call.Thought, vendor+":")
}
