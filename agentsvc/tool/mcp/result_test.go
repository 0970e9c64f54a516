package mcp_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"stoa/agentsvc/tool/mcp"
)

func TestText(t *testing.T) {
	t.Parallel()
	results := map[string]struct {
		res  sdk.CallToolResult
		want string
	}{
		"several": {sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "a"}, &sdk.TextContent{Text: "b"}}}, "a\nb"},
		"picture": {sdk.CallToolResult{Content: []sdk.Content{&sdk.ImageContent{MIMEType: "image/png", Data: []byte("abc")}}}, "[image image/png, 3 bytes]"},
		"sound":   {sdk.CallToolResult{Content: []sdk.Content{&sdk.AudioContent{MIMEType: "audio/wav", Data: []byte("abcd")}}}, "[audio audio/wav, 4 bytes]"},
		"link": {sdk.CallToolResult{Content: []sdk.Content{&sdk.ResourceLink{URI: "file:///a", Name: "a", Description: "a file"}}},
			"[resource file:///a a: a file]"},
		"resource": {sdk.CallToolResult{Content: []sdk.Content{&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "x://a", Text: "words"}}}},
			"[resource x://a]\nwords"},
		"blob": {sdk.CallToolResult{Content: []sdk.Content{&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "x://a", Blob: []byte("ab")}}}},
			"[resource x://a of unknown type, 2 bytes]"},
		"structure": {sdk.CallToolResult{StructuredContent: map[string]any{"n": 1}}, `{"n":1}`},
		"nothing":   {sdk.CallToolResult{}, ""},
		"failure":   {sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: "no such city"}}}, "error: no such city"},
		"riddle":    {sdk.CallToolResult{IsError: true}, "error: its server reported an error without a message"},
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "x", Version: "1"}, nil)
	for name, r := range results {
		addTool(s, name, "", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return &r.res, nil })
	}
	addTool(s, "long", "", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return textResult(strings.Repeat("é", 5<<17)), nil
	})
	s.AddTool(&sdk.Tool{Name: "panics", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return nil, context.DeadlineExceeded
		})
	have := toolsByName(t, newSource(t, mcp.Options{URL: startServer(t, newStreamableHandler(t, s)).URL}))
	for name, r := range results {
		if got := callTool(t, have[name], `{}`); got != r.want {
			t.Errorf("%s: %q, want %q", name, got, r.want)
		}
	}
	if got := callTool(t, have["long"], `{}`); len(got) > 1<<20+64 || !strings.HasSuffix(got, "é\n[cut here: the result is longer]") {
		t.Errorf("%d bytes, ending in %q", len(got), got[len(got)-40:])
	}
	if got := callTool(t, have["panics"], `{}`); !strings.HasPrefix(got, "error: its server refused the call: ") {
		t.Error(got)
	}
}
