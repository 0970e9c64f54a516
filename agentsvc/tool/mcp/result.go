package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"stoa/agentsvc/tool"
)

// formatResult returns a result as text for a model. Images and other binary content are named, not shown. A result
// with isError is returned as an error.
func formatResult(res *mcp.CallToolResult) (string, error) {
	// The server wants a further round with the client (e.g. a question to the user), which is not supported.
	if res.NeedsInput() {
		return "", errors.New("its server requested further input, which is not supported")
	}
	var b textBuilder
	for _, c := range res.Content {
		b.addPiece(formatContent(c))
	}
	// Structured content repeats the text where both are present, so it is used only without text.
	if len(res.Content) == 0 && res.StructuredContent != nil {
		raw, err := json.Marshal(res.StructuredContent)
		if err != nil {
			return "", errors.New("its server gave a result that is no JSON")
		}
		b.addPiece(string(raw))
	}
	switch {
	// The error's text goes to the model, which may correct its call.
	case res.IsError && b.Len() == 0:
		return "", errors.New("its server reported an error without a message")
	case res.IsError:
		return "", errors.New(b.String())
	}
	return b.String(), nil
}

// formatContent returns one piece of a result as text.
func formatContent(c mcp.Content) string {
	switch c := c.(type) {
	case *mcp.TextContent:
		return c.Text
	case *mcp.ImageContent:
		return fmt.Sprintf("[image %s, %d bytes]", describeMediaType(c.MIMEType), len(c.Data))
	case *mcp.AudioContent:
		return fmt.Sprintf("[audio %s, %d bytes]", describeMediaType(c.MIMEType), len(c.Data))
	case *mcp.ResourceLink:
		// A link is only named: Stoa does not fetch it.
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
		// An embedded resource with text is shown with its address.
		case r.Text != "":
			return fmt.Sprintf("[resource %s]\n%s", r.URI, r.Text)
		default:
			return fmt.Sprintf("[resource %s %s, %d bytes]", r.URI, describeMediaType(r.MIMEType), len(r.Blob))
		}
	}
	// A kind that a later version of the protocol defines.
	return "[content of an unknown kind]"
}

// describeMediaType returns a media type, or a text if the server sent none.
func describeMediaType(mimeType string) string {
	if mimeType == "" {
		return "of unknown type"
	}
	return mimeType
}

// textBuilder joins pieces with newlines, up to maxOutput bytes.
type textBuilder struct {
	strings.Builder
	truncated bool
}

// addPiece adds a piece, cut at a character if it is too long.
func (b *textBuilder) addPiece(piece string) {
	if b.truncated {
		return
	}
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	if left := maxOutput - b.Len(); len(piece) > left {
		// Do not cut within a character.
		for left > 0 && !utf8.RuneStart(piece[left]) {
			left--
		}
		piece = piece[:left] + tool.TruncationMark
		b.truncated = true
	}
	b.WriteString(piece)
}
