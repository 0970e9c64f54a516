package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// text puts a result into words for a model. What is no text is named, not shown. A result that tells of an error is
// returned as one.
func text(res *mcp.CallToolResult) (string, error) {
	if res.NeedsInput() {
		return "", errors.New("its server asks for more than arguments, which cannot be given")
	}
	var b builder
	for _, c := range res.Content {
		b.add(content(c))
	}
	if len(res.Content) == 0 && res.StructuredContent != nil {
		raw, err := json.Marshal(res.StructuredContent)
		if err != nil {
			return "", errors.New("its server gave a result that is no JSON")
		}
		b.add(string(raw))
	}
	switch {
	case res.IsError && b.Len() == 0:
		return "", errors.New("its server tells of an error and says nothing more")
	case res.IsError:
		return "", errors.New(b.String())
	}
	return b.String(), nil
}

// content puts one piece of a result into words.
func content(c mcp.Content) string {
	switch c := c.(type) {
	case *mcp.TextContent:
		return c.Text
	case *mcp.ImageContent:
		return fmt.Sprintf("[image %s, %d bytes]", media(c.MIMEType), len(c.Data))
	case *mcp.AudioContent:
		return fmt.Sprintf("[audio %s, %d bytes]", media(c.MIMEType), len(c.Data))
	case *mcp.ResourceLink:
		link := "[resource " + c.URI
		if c.Name != "" {
			link += " " + c.Name
		}
		if c.Description != "" {
			link += ": " + c.Description
		}
		return link + "]"
	case *mcp.EmbeddedResource:
		switch r := c.Resource; {
		case r == nil:
			return "[resource]"
		case r.Text != "":
			return fmt.Sprintf("[resource %s]\n%s", r.URI, r.Text)
		default:
			return fmt.Sprintf("[resource %s %s, %d bytes]", r.URI, media(r.MIMEType), len(r.Blob))
		}
	}
	return "[content of an unknown kind]"
}

// media names a media type, which a server may leave out.
func media(mimeType string) string {
	if mimeType == "" {
		return "of unknown type"
	}
	return mimeType
}

// builder joins pieces by line breaks, up to maxOutput bytes.
type builder struct {
	strings.Builder
	full bool
}

func (b *builder) add(piece string) {
	if b.full {
		return
	}
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	if left := maxOutput - b.Len(); len(piece) > left {
		for left > 0 && !utf8.RuneStart(piece[left]) {
			left--
		}
		piece = piece[:left] + "\n[cut here: the result is longer]"
		b.full = true
	}
	b.WriteString(piece)
}
