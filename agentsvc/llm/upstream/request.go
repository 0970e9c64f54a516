package upstream

import (
	"encoding/json"
	"slices"
	"strings"

	"stoa/agentsvc"
)

// PartsText returns the concatenated text of parts, with data parts as JSON and without files.
func PartsText(parts ...agentsvc.Part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
		if p.Data != nil {
			// The value was decoded from JSON, so it can be encoded.
			text, _ := json.Marshal(p.Data.Value)
			b.Write(text)
		}
	}
	return b.String()
}

// HasFile reports whether parts contains a file.
func HasFile(parts []agentsvc.Part) bool {
	return slices.ContainsFunc(parts, func(p agentsvc.Part) bool { return p.File != nil })
}

// ParameterSchema returns the JSON Schema of a tool's parameters as a map, which the caller may change; that of an
// object without properties if the tool has none.
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

// CallArguments returns a call's arguments as an object, an empty one if they are none: some vendors refuse anything
// else.
func CallArguments(call agentsvc.ToolCall) map[string]any {
	args := map[string]any{}
	if json.Unmarshal(call.Arguments, &args) != nil || args == nil {
		return map[string]any{}
	}
	return args
}

// SealThought marks a thought with its vendor, so that it is not sent to another one, e.g. after a fallback.
func SealThought(vendor, thought string) string { return vendor + ":" + thought }

// UnsealThought returns the thought of a call, and whether it is this vendor's.
func UnsealThought(vendor string, call agentsvc.ToolCall) (string, bool) {
	return strings.CutPrefix(call.Thought, vendor+":")
}
