package runtime_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/runtime"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// parserServer is an MCP server whose tool read_drawing reads drawings: files that begin with DRAWING. The rest of one is its
// text.
type parserServer struct {
	URL    string
	isDown atomic.Bool
	calls  atomic.Int64
}

func startParserServer(t *testing.T) *parserServer {
	t.Helper()
	p := &parserServer{}
	s := sdk.NewServer(&sdk.Implementation{Name: "parsers", Version: "1"}, nil)
	schema := json.RawMessage(`{"type":"object","properties":{"content_base64":{"type":"string"},"name":{"type":"string"}},"required":["content_base64","name"]}`)
	s.AddTool(&sdk.Tool{Name: "read_drawing", InputSchema: schema}, func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		p.calls.Add(1)
		var arguments struct {
			Content string `json:"content_base64"`
			Name    string
		}
		if err := json.Unmarshal(req.Params.Arguments, &arguments); err != nil {
			return nil, err
		}
		content, err := base64.StdEncoding.DecodeString(arguments.Content)
		if err != nil {
			return nil, err
		}
		text, isDrawing := strings.CutPrefix(string(content), drawingMark)
		if !isDrawing {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "the secret path /srv/drawings has no such drawing"}}, IsError: true}, nil
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "# Plan of " + arguments.Name + "\n" + text}}}, nil
	})
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.isDown.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	p.URL = srv.URL
	return p
}

// drawingMark begins a drawing, which no built-in reader knows.
const drawingMark = "DRAWING\x00\x01\x02"

const parserSource = `
llms: {demo: {provider: scripted, script: [{then: [{say: hello}]}]}}
embedders: {words: {provider: hashing}}
tools: {remote: {type: mcp, url: "URL"}}
document_stores:
  manual:
    source: {type: upload}
    embedder: words
    mcp_parsers: {tool_names: [read_drawing], extensions: [.dwg, .txt], prefer_native: true}
    indexing: {retry: {max_retries: 100, base_delay: 10ms, max_delay: 50ms}}
agents: {helper: {llm: demo, document_stores: [manual]}}
`

// TestMCPParsers indexes documents by a tool of a real MCP server in whole passes: what it reads is found with its place, what
// it cannot read fails without its text, and while it is down documents wait.
func TestMCPParsers(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		server := startParserServer(t)
		server.isDown.Store(true)
		cfg := mustParse(t, strings.ReplaceAll(parserSource, "URL", server.URL), config.Options{})
		a := newAppWith(t, d, cfg, runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, PrivateNetwork: true}, slog.New(slog.DiscardHandler), func(h *runtime.Dependencies) {
			h.DocumentReader = newDocumentReader(t)
		})
		startIndexerOf(t, d, a)
		rows := a.Documents().Rows
		put := func(id, body string) {
			t.Helper()
			if _, _, err := rows.Documents.Put(t.Context(), "manual", corpus.Upload{ID: id, Body: []byte(body)}); err != nil {
				t.Fatal(err)
			}
		}
		get := func(id string) document.Document {
			t.Helper()
			one, err := rows.Documents.Get(t.Context(), "manual", id, document.Reader{All: true})
			if err != nil {
				t.Fatal(err)
			}
			return one
		}
		put("plan.dwg", drawingMark+"The staircase has forty steps.")
		put("note.txt", "The cellar is dry.") // a built-in reader reads it first
		put("note.md", "The roof is new.")    // no tool is asked for this ending
		dbtest.WaitUntil(t, "the notes are indexed, and the drawing is not", func() bool {
			return get("note.txt").State == document.Indexed && get("note.md").State == document.Indexed && get("plan.dwg").Error != ""
		})
		if drawing := get("plan.dwg"); drawing.State != document.Pending {
			t.Errorf("while the server is down: %+v", drawing)
		}
		server.isDown.Store(false)
		dbtest.WaitUntil(t, "the drawing is indexed", func() bool { return get("plan.dwg").State == document.Indexed })
		if n := server.calls.Load(); n != 1 {
			t.Errorf("the tool was called %d times, want once", n)
		}
		s, err := a.Documents().Store("manual")
		if err != nil {
			t.Fatal(err)
		}
		found, err := s.Searcher.Search(t.Context(), agentsvc.Payer{Owner: ana}, document.Query{Text: "steps of the staircase", Limit: 1, Reader: document.Reader{Owner: ana}})
		if err != nil || len(found.Passages) != 1 {
			t.Fatalf("%+v, %v", found, err)
		}
		type passage struct{ Document, Title, Heading string }
		p := found.Passages[0]
		if diff := cmp.Diff(passage{"plan.dwg", "Plan of plan.dwg", "Plan of plan.dwg"}, passage{p.Document, p.Title, p.Place.Heading}); diff != "" || !strings.Contains(p.Text, "forty steps") {
			t.Errorf("%s%q", diff, p.Text)
		}
		put("broken.dwg", "no drawing \x00\x01\x02")
		dbtest.WaitUntil(t, "the broken drawing is refused", func() bool { return get("broken.dwg").Error != "" })
		if broken := get("broken.dwg"); !strings.Contains(broken.Error, "read_drawing could not read the document") || strings.Contains(broken.Error, "secret") {
			t.Errorf("%+v", broken)
		}
	})
}
