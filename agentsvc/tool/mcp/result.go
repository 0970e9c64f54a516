package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// formatResult puts a result into words for a model. What is no text is named, not shown. A result that tells of an error is
// returned as one.
func formatResult(res *mcp.CallToolResult) (string, error) {
	if res.NeedsInput() {
		return "", errors.New("its server asks for more than arguments, which cannot be given")
	}
	var b textBuilder
	for _, c := range res.Content {
		b.addPiece(formatContent(c))
	}
	if len(res.Content) == 0 && res.StructuredContent != nil {
		raw, err := json.Marshal(res.StructuredContent)
		if err != nil {
			return "", errors.New("its server gave a result that is no JSON")
		}
		b.addPiece(string(raw))
	}
	switch {
	case res.IsError && b.Len() == 0:
		return "", errors.New("its server tells of an error and says nothing more")
	case res.IsError:
		return "", errors.New(b.String())
	}
	return b.String(), nil
}

// formatContent puts one piece of a result into words.
func formatContent(c mcp.Content) string {
	switch c := c.(type) {
	case *mcp.TextContent:
		return c.Text
	case *mcp.ImageContent:
		return fmt.Sprintf("[image %s, %d bytes]", describeMediaType(c.MIMEType), len(c.Data))
	case *mcp.AudioContent:
		return fmt.Sprintf("[audio %s, %d bytes]", describeMediaType(c.MIMEType), len(c.Data))
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
			return fmt.Sprintf("[resource %s %s, %d bytes]", r.URI, describeMediaType(r.MIMEType), len(r.Blob))
		}
	}
	return "[content of an unknown kind]"
}

// describeMediaType names a media type, which a server may leave out.
func describeMediaType(mimeType string) string {
	if mimeType == "" {
		return "of unknown type"
	}
	return mimeType
}

// textBuilder joins pieces by line breaks, up to maxOutput bytes.
type textBuilder struct {
	strings.Builder
	truncated bool
}

func (b *textBuilder) addPiece(piece string) {
	if b.truncated {
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
		b.truncated = true
	}
	b.WriteString(piece)
}
