package scripted

import (
	"regexp"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
)

var placeholderPattern = regexp.MustCompile(`\{\{(\w+)\}\}`)

// fillPlaceholders replaces the placeholders of s, each of which may stand for all that the user sent. Where the answer has no room for that it
// returns nothing, and the answer has its error.
func (a *answerWriter) fillPlaceholders(s string) string {
	size := len(s)
	for _, at := range placeholderPattern.FindAllStringIndex(s, -1) {
		size += len(a.values[s[at[0]+2:at[1]-2]])
	}
	if size > a.remainingBytes {
		a.err = agentsvc.NewInvalidError("", "the placeholders of the script make an answer of more than %d bytes", a.req.ByteLimit())
	} else if err := capacity.ReservationFrom(a.ctx).ReserveBytes(a.ctx, int64(size)); err != nil {
		a.err = err
	}
	if a.err != nil {
		return ""
	}
	a.remainingBytes -= size
	return placeholderPattern.ReplaceAllStringFunc(s, func(found string) string {
		return a.values[found[2:len(found)-2]]
	})
}

// fillValue returns a copy of v, a JSON value, with the placeholders of every string in it replaced.
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
