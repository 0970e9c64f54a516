package agent

import (
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"stoa/agentsvc"
)

// toA2AParts converts parts of the domain to those of the A2A library. A file with an address is sent by reference, any
// other by value.
func toA2AParts(parts []agentsvc.Part) (out a2a.ContentParts) {
	for _, p := range parts {
		switch {
		case p.File != nil && p.File.URI != "":
			out = append(out, &a2a.Part{Content: a2a.URL(p.File.URI), Filename: p.File.Name, MediaType: p.File.MediaType})
		case p.File != nil:
			out = append(out, &a2a.Part{Content: a2a.Raw(p.File.Bytes), Filename: p.File.Name, MediaType: p.File.MediaType})
		case p.Data != nil:
			out = append(out, &a2a.Part{Content: a2a.Data{Value: p.Data.Value}, MediaType: p.Data.MediaType})
		default:
			out = append(out, a2a.NewTextPart(p.Text))
		}
	}
	return out
}

// fromA2AParts converts parts that a remote agent sent. Nil parts and unknown kinds are dropped.
func fromA2AParts(parts a2a.ContentParts) (out []agentsvc.Part) {
	for _, p := range parts {
		if p == nil {
			continue
		}
		switch c := p.Content.(type) {
		case a2a.Text:
			out = append(out, agentsvc.TextPart(string(c)))
		case a2a.Raw:
			out = append(out, agentsvc.Part{File: &agentsvc.File{Name: p.Filename, MediaType: p.MediaType, Bytes: c}})
		case a2a.URL:
			out = append(out, agentsvc.Part{File: &agentsvc.File{Name: p.Filename, MediaType: p.MediaType, URI: string(c)}})
		case a2a.Data:
			out = append(out, agentsvc.Part{Data: &agentsvc.Data{MediaType: p.MediaType, Value: c.Value}})
		}
	}
	return out
}

// joinText returns the concatenated text parts, without files and data.
func joinText(parts []agentsvc.Part) string {
	var b strings.Builder
	for _, p := range parts {
		if isPlainText(p) {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// isPlainText reports whether p is a text part.
func isPlainText(p agentsvc.Part) bool { return p.File == nil && p.Data == nil }
