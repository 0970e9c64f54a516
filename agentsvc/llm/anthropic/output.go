package anthropic

import (
	"slices"

	"stoa/agentsvc/llm"
)

// outputSchema returns the schema of the request's format in the form that the API accepts. It returns false where the
// system prompt must describe the format: the model has no mode for it, or the schema cannot be expressed.
func (p *Provider) outputSchema(req llm.Request) (map[string]any, bool) {
	if !req.Output.IsObject() || !hasOutputMode(p.opts.Model) {
		return nil, false
	}
	return restrictSchema(req.Output.Schema)
}

// The keywords of JSON Schema by what becomes of them. A schema with any other keyword is not expressed. What is dropped
// only restricts values: the agent checks the answer with the whole schema.
var (
	copiedKeywords  = []string{"title", "description", "enum", "const", "default", "required", "$ref"}
	listKeywords    = []string{"anyOf", "oneOf", "allOf"}
	mapKeywords     = []string{"properties", "$defs", "definitions"}
	droppedKeywords = []string{
		"$schema", "$id", "$comment", "examples", "format", "pattern", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
		"multipleOf", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "additionalProperties", "type",
	}
)

// restrictSchema returns a schema in the part of JSON Schema that the API accepts: objects have named properties and no
// others, and values have no bounds. It returns false if values of the schema would be lost, e.g. those of an object
// with any properties.
func restrictSchema(schema any) (map[string]any, bool) {
	in, ok := schema.(map[string]any)
	if !ok {
		return nil, false
	}
	out := map[string]any{}
	for key, value := range in {
		switch {
		case slices.Contains(copiedKeywords, key):
			out[key] = value
		case slices.Contains(listKeywords, key):
			// The API has no oneOf. The alternatives are the same.
			if key == "oneOf" {
				key = "anyOf"
			}
			list, isList := value.([]any)
			ok = ok && isList && out[key] == nil
			restricted := make([]any, len(list))
			for i := range list {
				restricted[i], ok = restrictAnd(ok, list[i])
			}
			out[key] = restricted
		case slices.Contains(mapKeywords, key):
			entries, isMap := value.(map[string]any)
			ok = ok && isMap
			restricted := make(map[string]any, len(entries))
			for name := range entries {
				restricted[name], ok = restrictAnd(ok, entries[name])
			}
			out[key] = restricted
		case key == "items":
			out[key], ok = restrictAnd(ok, value)
		case !slices.Contains(droppedKeywords, key):
			ok = false
		}
	}
	return out, ok && restrictType(in, out)
}

// restrictAnd returns the restricted schema, and whether it and what came before it are expressed.
func restrictAnd(before bool, schema any) (any, bool) {
	out, ok := restrictSchema(schema)
	return out, before && ok
}

// restrictType sets the type of out from that of in, and reports whether out has the same values.
func restrictType(in, out map[string]any) bool {
	switch t := in["type"].(type) {
	case string:
		out["type"] = t
	case []any:
		// The API has no lists of types. Alternatives of plain values are the same.
		if out["anyOf"] != nil || slices.Contains(t, any("object")) || slices.Contains(t, any("array")) {
			return false
		}
		if out["enum"] == nil {
			alternatives := make([]any, len(t))
			for i := range t {
				alternatives[i] = map[string]any{"type": t[i]}
			}
			out["anyOf"] = alternatives
		}
	default:
		return in["type"] == nil && (out["enum"] != nil || out["const"] != nil || out["anyOf"] != nil || out["allOf"] != nil || out["$ref"] != nil)
	}
	switch out["type"] {
	case "object":
		properties, _ := out["properties"].(map[string]any)
		out["additionalProperties"] = false
		return len(properties) > 0 && (in["additionalProperties"] == nil || in["additionalProperties"] == false)
	case "array":
		return out["items"] != nil
	}
	return true
}
