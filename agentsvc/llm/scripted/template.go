package scripted

import (
	"regexp"

	"stoa/agentsvc"
)

// placeholderPattern matches a placeholder such as {{text}}.
var placeholderPattern = regexp.MustCompile(`\{\{(\w+)\}\}`)

// fillPlaceholders returns s with its placeholders replaced. The size is computed and reserved first: each placeholder
// may be as long as everything the user sent, so a small script could fill the memory. If the result exceeds the
// answer's bound, it sets a.err and returns "".
func (a *answerWriter) fillPlaceholders(s string) string {
	size := len(s)
	// The size is known without building the text.
	found := placeholderPattern.FindAllStringIndex(s, -1)
	for _, at := range found {
		size += len(a.values[s[at[0]+2:at[1]-2]])
	}
	if size > a.remainingBytes {
		a.err = agentsvc.NewInvalidError("", "the placeholders of the script make an answer of more than %d bytes", a.req.ByteLimit())
	} else if err := a.req.Memory.ReserveBytes(a.ctx, int64(size)); err != nil {
		a.err = err
	}
	if a.err != nil {
		return ""
	}
	a.remainingBytes -= size
	if len(found) == 0 {
		return s
	}
	return placeholderPattern.ReplaceAllStringFunc(s, func(found string) string {
		return a.values[found[2:len(found)-2]]
	})
}

// fillValue returns a copy of the JSON value v with the placeholders in its strings replaced.
func (a *answerWriter) fillValue(v any) any {
	switch v := v.(type) {
	case string:
		return a.fillPlaceholders(v)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = a.fillValue(e)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = a.fillValue(e)
		}
		return out
	}
	return v
}
