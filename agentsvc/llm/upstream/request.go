package upstream

import (
	"encoding/json"
	"slices"
	"strings"

	"stoa/agentsvc"
)

// PartsText returns the text of parts, data as JSON. Files are left out.
func PartsText(parts ...agentsvc.Part) string {
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

// ParameterSchema returns the schema of a tool's parameters, that of an object without properties where it has none.
func ParameterSchema(spec agentsvc.ToolSpec) (map[string]any, error) {
	if len(spec.Parameters) == 0 {
		return map[string]any{"type": "object", "properties": map[string]any{}}, nil
	}
	var schema map[string]any
	if err := json.Unmarshal(spec.Parameters, &schema); err != nil || schema == nil {
		return nil, agentsvc.NewInvalidError(spec.Name+".parameters", "are no JSON object")
	}
	return schema, nil
}

// CallArguments returns a call's arguments as an object, an empty one where they are none.
func CallArguments(call agentsvc.ToolCall) map[string]any {
	args := map[string]any{}
	if json.Unmarshal(call.Arguments, &args) != nil || args == nil {
		return map[string]any{}
	}
	return args
}

// SealThought marks a thought as the vendor's own, so that no other vendor is sent it.
func SealThought(vendor, thought string) string { return vendor + ":" + thought }

// UnsealThought returns the thought that came with a call, if it is this vendor's.
func UnsealThought(vendor string, call agentsvc.ToolCall) (string, bool) {
	return strings.CutPrefix(call.Thought, vendor+":")
}
