package guardrail

import (
	"mime"
	"slices"
	"strings"
	"unicode/utf8"

	"stoa/agentsvc"
)

// rewriteTexts returns parts with f applied to each text: text parts, every string and key in data parts, and files
// with textual content. It does not change parts; if f changes nothing, it returns parts itself.
func rewriteTexts(parts []agentsvc.Part, f func(string) string) []agentsvc.Part {
	cloned := false
	for i, p := range parts {
		changed := false
		switch {
		case p.Data != nil:
			var v any
			if v, changed = rewriteValue(p.Data.Value, f); changed {
				p.Data = &agentsvc.Data{MediaType: p.Data.MediaType, Value: v}
			}
		case p.File != nil:
			if isTextFile(p.File) {
				old := string(p.File.Bytes)
				if s := f(old); s != old {
					file := *p.File
					file.Bytes = []byte(s)
					p.File, changed = &file, true
				}
			}
		default:
			old := p.Text
			p.Text = f(old)
			changed = p.Text != old
		}
		if !changed {
			continue
		}
		if !cloned {
			parts, cloned = slices.Clone(parts), true
		}
		parts[i] = p
	}
	return parts
}

// rewriteValue returns the JSON value v with f applied to each string and object key in it, and whether it differs from
// v.
func rewriteValue(v any, f func(string) string) (any, bool) {
	switch v := v.(type) {
	case string:
		s := f(v)
		return s, s != v
	case []any:
		out, changed := make([]any, len(v)), false
		for i, x := range v {
			y, c := rewriteValue(x, f)
			out[i], changed = y, changed || c
		}
		return out, changed
	case map[string]any:
		out, changed := make(map[string]any, len(v)), false
		for k, x := range v {
			key := f(k)
			y, c := rewriteValue(x, f)
			out[key], changed = y, changed || c || key != k
		}
		return out, changed
	}
	return v, false
}

// isTextFile reports whether the file is given by value and is text: valid UTF-8 with a textual media type.
func isTextFile(f *agentsvc.File) bool {
	kind, _, err := mime.ParseMediaType(f.MediaType)
	if err != nil || !utf8.Valid(f.Bytes) {
		return false
	}
	return strings.HasPrefix(kind, "text/") || kind == "application/json" || kind == "application/xml" ||
		strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "+xml")
}

// collectTexts returns every text that [rewriteTexts] reaches, in order.
func collectTexts(parts []agentsvc.Part) []string {
	var texts []string
	rewriteTexts(parts, func(s string) string {
		texts = append(texts, s)
		return s
	})
	return texts
}
