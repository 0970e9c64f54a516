package mcpparser_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/source"
	"stoa/agentsvc/document/source/mcpparser"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/tool"
	"stoa/agentsvc/tool/mcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parserTool is a tool of the server of the tests: its parameters, and what it makes of the arguments.
type parserTool struct {
	schema string
	answer func(arguments map[string]string) (text string, failed bool)
}

// startTools serves tools by MCP over HTTP and returns them as an app has them.
func startTools(t *testing.T, tools map[string]parserTool) map[string]tool.Tool {
	t.Helper()
	s := sdk.NewServer(&sdk.Implementation{Name: "parsers", Version: "1"}, nil)
	for name, p := range tools {
		s.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(p.schema)}, func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			var arguments map[string]string
			if err := json.Unmarshal(req.Params.Arguments, &arguments); err != nil {
				return nil, err
			}
			text, failed := p.answer(arguments)
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}, IsError: failed}, nil
		})
	}
	srv := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil))
	client := egress.New(egress.Options{PrivateNetwork: true})
	server, err := mcp.New(mcp.Options{Name: "parsers", URL: srv.URL, HTTP: client.HTTP(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Close()
		for session := range s.Sessions() {
			_ = session.Close()
		}
		srv.CloseClientConnections()
		srv.Close()
		client.Close()
	})
	list, err := server.ListTools(t.Context(), agentsvc.SessionKey{})
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]tool.Tool{}
	for _, tl := range list {
		named[tl.Spec().Name] = tl
	}
	return named
}

const (
	base64Schema = `{"type":"object","properties":{"content_base64":{"type":"string"},"uri":{"type":"string"},"name":{"type":"string"},"media_type":{"type":"string"}},"required":["content_base64","name"]}`
	uriSchema    = `{"type":"object","properties":{"uri":{"type":"string"}},"required":["uri"]}`
	pathSchema   = `{"type":"object","properties":{"file_path":{"type":"string"},"filename":{"type":"string"}},"required":["file_path"]}`
)

// TestParse checks how documents reach tools of a real MCP server, and what becomes of the results.
func TestParse(t *testing.T) {
	t.Parallel()
	body := []byte("\x00PDF\xff")
	encoded := base64.StdEncoding.EncodeToString(body)
	folder := t.TempDir()
	for name, c := range map[string]struct {
		parserTool
		want document.Content
		err  string
	}{
		"content": {parserTool{base64Schema, func(a map[string]string) (string, bool) {
			return a["content_base64"] + a["uri"] + " " + a["name"] + " " + a["media_type"], false
		}},
			document.Content{MediaType: "text/markdown", Sections: []document.Section{{Text: encoded + " a/b.pdf application/pdf", Place: document.Place{Line: 1}}}}, ""},
		"data address": {parserTool{uriSchema, func(a map[string]string) (string, bool) { return a["uri"], false }},
			document.Content{MediaType: "text/markdown", Sections: []document.Section{{Text: "data:application/pdf;base64," + encoded, Place: document.Place{Line: 1}}}}, ""},
		"path": {parserTool{pathSchema, func(a map[string]string) (string, bool) {
			content, err := os.ReadFile(a["file_path"])
			return strings.TrimPrefix(a["file_path"], folder)[len("/document-"):] + " " + base64.StdEncoding.EncodeToString(content) + " " + a["filename"], err != nil
		}}, document.Content{}, "see below"},
		"headings": {parserTool{uriSchema, func(map[string]string) (string, bool) {
			return "# The title #\r\nintro\n## One\n```\n# no heading\n~~~\n```\nx\n\n# \n#hashtag\n    # code\n### Deep\ny\n", false
		}}, document.Content{Title: "The title", MediaType: "text/markdown", Sections: []document.Section{
			{Text: "# The title #\r\nintro\n", Place: document.Place{Heading: "The title", Line: 1}},
			{Text: "## One\n```\n# no heading\n~~~\n```\nx\n\n", Place: document.Place{Heading: "The title > One", Line: 3}},
			{Text: "# \n#hashtag\n    # code\n", Place: document.Place{Line: 10}},
			{Text: "### Deep\ny\n", Place: document.Place{Heading: "Deep", Line: 13}},
		}}, ""},
		"JSON": {parserTool{uriSchema, func(map[string]string) (string, bool) { return `{"pages":2,"text":"x","markdown":"y"}`, false }},
			document.Content{MediaType: "text/markdown", Sections: []document.Section{{Text: "y", Place: document.Place{Line: 1}}}}, ""},
		"many sections": {parserTool{uriSchema, func(map[string]string) (string, bool) { return strings.Repeat("#\nx\n", 60_000), false }}, document.Content{},
			"the tool many sections made more than 50000 sections of the document: split it"},
		"long heading": {parserTool{uriSchema, func(map[string]string) (string, bool) { return "# " + strings.Repeat("ü", 200) + "\n## b\n", false }},
			document.Content{Title: strings.Repeat("ü", 100), MediaType: "text/markdown", Sections: []document.Section{
				{Text: "# " + strings.Repeat("ü", 200) + "\n", Place: document.Place{Heading: strings.Repeat("ü", 100), Line: 1}},
				{Text: "## b\n", Place: document.Place{Heading: strings.Repeat("ü", 100) + " > b", Line: 2}},
			}}, ""},
		"fails": {parserTool{uriSchema, func(map[string]string) (string, bool) { return "secret text", true }}, document.Content{}, "the tool fails could not read the document"},
		"empty": {parserTool{uriSchema, func(map[string]string) (string, bool) { return `{"text":" \n"}`, false }}, document.Content{}, "the tool empty found no text in the document"},
		"long":  {parserTool{uriSchema, func(map[string]string) (string, bool) { return strings.Repeat("x", 3<<20), false }}, document.Content{}, "the tool long made more text of the document than a tool may answer with"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tools := startTools(t, map[string]parserTool{name: {c.schema, c.answer}, "unused": {uriSchema, c.answer}})
			key := name
			for tl := range tools {
				if tl != "unused" {
					key = tl
				}
			}
			parse, err := mcpparser.New(mcpparser.Options{Tools: []tool.Tool{tools[key]}, Config: &config.MCPParsers{}, Folder: folder})
			if err != nil {
				t.Fatal(err)
			}
			got, err := parse(t.Context(), "a/b.pdf", "application/pdf", body)
			if name == "path" {
				if err != nil || len(got.Sections) != 1 || !strings.HasSuffix(got.Sections[0].Text, "/document.pdf "+encoded+" a/b.pdf") {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			if err != nil && err.Error() != c.err || err == nil && c.err != "" {
				t.Errorf("got %v, want %s", err, c.err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Cleanup(func() {
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
			t.Errorf("%d files are left, %v", len(left), err)
		}
	})
}

// TestOrder checks that a later tool reads what an earlier one cannot.
func TestOrder(t *testing.T) {
	t.Parallel()
	tools := startTools(t, map[string]parserTool{
		"first":  {uriSchema, func(map[string]string) (string, bool) { return "", true }},
		"second": {uriSchema, func(map[string]string) (string, bool) { return "read", false }},
	})
	parse, err := mcpparser.New(mcpparser.Options{Tools: []tool.Tool{tools["first"], tools["second"]}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parse(t.Context(), "a", "", nil); err != nil || got.Sections[0].Text != "read" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := parse(t.Context(), "a", "", make([]byte, 20<<20+1)); !source.IsPermanent(err) {
		t.Errorf("a large document: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := parse(ctx, "a", "", nil); err == nil || err.Error() != "the call of the tool first was cancelled" {
		t.Errorf("cancelled: %v", err)
	}
}

// fakeTool is a tool that is not called.
type fakeTool struct{ agentsvc.ToolSpec }

func (f fakeTool) Spec() agentsvc.ToolSpec                         { return f.ToolSpec }
func (f fakeTool) Call(context.Context, tool.Call) (string, error) { return "", nil }
func (f fakeTool) IsIdempotent() bool                              { return true }

func TestUnfitTools(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		``:                            "the tool x takes no document: it has none of the parameters content_base64, uri, source, path, file_path",
		`{"properties":{"query":{}}}`: "the tool x takes no document: it has none of the parameters content_base64, uri, source, path, file_path",
		pathSchema:                    "the tool x takes the path of a file only, which its server cannot read",
		`{"properties":{"uri":{},"language":{}},"required":["uri","language"]}`: "the tool x demands the parameter language, which is unknown here",
	} {
		_, err := mcpparser.New(mcpparser.Options{Tools: []tool.Tool{fakeTool{agentsvc.ToolSpec{Name: "x", Parameters: json.RawMessage(schema)}}}})
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", schema, err, want)
		}
	}
	if _, err := mcpparser.New(mcpparser.Options{}); err == nil {
		t.Error("no tool is accepted")
	}
}

func TestHandles(t *testing.T) {
	t.Parallel()
	c := &config.MCPParsers{Extensions: []string{".pdf", ".tar.gz"}}
	for name, want := range map[string]bool{"a.pdf": true, "b/A.PDF": true, "x.tar.gz": true, "pdf": false, "a.pdf.txt": false} {
		if got := mcpparser.Handles(c, name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if mcpparser.Handles(nil, "a.pdf") || !mcpparser.Handles(&config.MCPParsers{}, "a") {
		t.Error("without extensions")
	}
}
