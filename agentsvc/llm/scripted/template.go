package scripted

import (
	"regexp"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
)

var placeholder = regexp.MustCompile(`\{\{(\w+)\}\}`)

// fill replaces the placeholders of s, each of which may stand for all that the user sent. Where the answer has no room for that it
// returns nothing, and the answer has its error.
func (a *answer) fill(s string) string {
	size := len(s)
	for _, at := range placeholder.FindAllStringIndex(s, -1) {
		size += len(a.values[s[at[0]+2:at[1]-2]])
	}
	if size > a.room {
		a.err = agentsvc.Invalid("", "the placeholders of the script make an answer of more than %d bytes", a.req.Bytes())
	} else if err := capacity.Of(a.ctx).Add(a.ctx, int64(size)); err != nil {
		a.err = err
	}
	if a.err != nil {
		return ""
	}
	a.room -= size
	return placeholder.ReplaceAllStringFunc(s, func(found string) string {
		return a.values[found[2:len(found)-2]]
	})
}

// fillAll returns a copy of v, a JSON value, with the placeholders of every string in it replaced.
func (a *answer) fillAll(v any) any {
	switch v := v.(type) {
	case string:
		return a.fill(v)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = a.fillAll(e)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = a.fillAll(e)
		}
		return out
	}
	return v
}
