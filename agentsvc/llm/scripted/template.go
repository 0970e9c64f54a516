package scripted

import "regexp"

var placeholder = regexp.MustCompile(`\{\{(\w+)\}\}`)

// fill replaces the placeholders of s.
func fill(s string, values map[string]string) string {
	return placeholder.ReplaceAllStringFunc(s, func(found string) string {
		return values[found[2:len(found)-2]]
	})
}

// fillAll returns a copy of v, a JSON value, with the placeholders of every string in it replaced.
func fillAll(v any, values map[string]string) any {
	switch v := v.(type) {
	case string:
		return fill(v, values)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = fillAll(e, values)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = fillAll(e, values)
		}
		return out
	}
	return v
}
