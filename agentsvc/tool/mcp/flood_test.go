package mcp_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/tool/mcp"
	"stoa/tenancy/db/dbtest"
)

// maxFlooded is where a flood ends by itself, so that the test of a missing bound does not fill this machine.
const maxFlooded = 96 << 20

// floodServer is a server over streamable HTTP, or SSE, that floods its event stream and never answers the replies.
type floodServer struct {
	// event is one event of the flood; empty: there is no flood.
	event func(n int) string
	// page answers tools/list after the first page; nil: there is one page.
	page func(n int64) string

	initialized, pages, sent atomic.Int64
	// flooding counts the streams that are being flooded, active all requests in progress.
	flooding, active atomic.Int64
}

// start serves s until the test ends.
func (s *floodServer) start(t *testing.T) string {
	t.Helper()
	return startServer(t, s).URL
}

// ServeHTTP implements [http.Handler].
func (s *floodServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.active.Add(1)
	defer s.active.Add(-1)
	if r.Method == http.MethodGet {
		w.Header().Set("Content-Type", "text/event-stream")
		s.flood(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	var request struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	_ = json.Unmarshal(body, &request)
	result := `{"tools":[{"name":"boom","inputSchema":{"type":"object"}}]}`
	switch request.Method {
	case "": // a reply, or the end of the session
		if r.Method == http.MethodPost {
			<-r.Context().Done()
		}
		return
	case "initialize":
		s.initialized.Add(1)
		w.Header().Set("Mcp-Session-Id", "abc")
		result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"x","version":"1"}}`
	case "tools/list":
		n := s.pages.Add(1)
		if s.page != nil {
			result = s.page(n)
		}
	case "tools/call":
		<-r.Context().Done()
		return
	case "server/discover":
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, request.ID)
		return
	default:
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, request.ID, result)
}

// flood writes events until the client ends the stream, or maxFlooded.
func (s *floodServer) flood(w http.ResponseWriter, r *http.Request) {
	s.flooding.Add(1)
	defer s.flooding.Add(-1)
	w.(http.Flusher).Flush()
	for i := 0; s.event != nil && s.sent.Load() < maxFlooded; {
		var events strings.Builder
		for events.Len() < 16<<10 {
			i++
			events.WriteString(s.event(i))
		}
		n, err := io.WriteString(w, events.String())
		s.sent.Add(int64(n))
		if err != nil {
			return
		}
	}
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// floodEvent returns an event with a JSON-RPC message.
func floodEvent(method, id, params string) string {
	return `data: {"jsonrpc":"2.0","method":"` + method + `"` + id + params + "}\n\n"
}

// TestUnsolicitedMessages lets servers flood the event stream of a session that has no call in progress. The session
// ends, its memory and connections are released, and the server is not connected to again at once.
func TestUnsolicitedMessages(t *testing.T) {
	long := `,"params":{"_meta":{"x":"` + strings.Repeat("y", 20<<10) + `"}}`
	const tooMany = "it sent too many messages that answer no call: at most 256 at once and 32 a second are read"
	const tooMuch = "it sent too much that answers no call: at most 1 MiB at once and 64 KiB a second are read"
	for name, tt := range map[string]struct {
		event func(n int) string
		want  string
	}{
		"pings":          {func(n int) string { return floodEvent("ping", fmt.Sprintf(`,"id":"p%d"`, n), "") }, tooMany},
		"a changed list": {func(int) string { return floodEvent("notifications/tools/list_changed", "", "") }, tooMany},
		"progress": {func(int) string {
			return floodEvent("notifications/progress", "", `,"params":{"progressToken":"x","progress":1}`)
		}, tooMany},
		"unknown answers": {func(n int) string {
			return fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{}}\n\n", 1_000_000+n)
		}, tooMany},
		"large messages": {func(n int) string {
			return floodEvent("ping", fmt.Sprintf(`,"id":"p%d"`, n), long)
		}, tooMuch},
		"comments":     {func(int) string { return ": " + strings.Repeat("a", 1<<10) + "\n" }, tooMuch},
		"empty events": {func(int) string { return "\n" }, tooMany},
	} {
		t.Run(name, func(t *testing.T) {
			s := &floodServer{event: tt.event}
			src := newSource(t, mcp.Options{URL: s.start(t), Transport: mcp.StreamableHTTP})
			before := heapSize()
			list, err := src.ListTools(t.Context(), agentsvc.SessionKey{})
			if err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error = %v", err)
			}
			dbtest.WaitUntil(t, "the stream ends", func() bool { return s.flooding.Load() == 0 || s.sent.Load() >= maxFlooded })
			// The buffers of both sockets hold a few MiB.
			if sent := s.sent.Load(); sent > 24<<20 {
				t.Errorf("the server could send %d MiB", sent>>20)
			}
			if grown := heapSize() - before; grown > 24<<20 {
				t.Errorf("the heap grew by %d MiB", grown>>20)
			}
			dbtest.WaitUntil(t, "the requests of the session end", func() bool { return s.active.Load() == 0 })
			for range 5 {
				if len(list) > 0 {
					if got, want := callTool(t, list[0], `{}`), "error: its server is not available: "+tt.want; got != want {
						t.Errorf("a call: %q, want %q", got, want)
					}
				} else if got := unavailableReason(t, src); !strings.HasSuffix(got, tt.want) {
					t.Errorf("reason %q", got)
				}
			}
			if n := s.initialized.Load(); n != 1 {
				t.Errorf("the server was connected to %d times at once", n)
			}
		})
	}
}

// heapSize returns the bytes of the heap in use after a collection.
func heapSize() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestFloodDuringCall floods while a call waits: the call fails with the bound.
func TestFloodDuringCall(t *testing.T) {
	t.Parallel()
	var flooding atomic.Bool
	release := make(chan struct{})
	s := &floodServer{event: func(n int) string {
		if flooding.CompareAndSwap(false, true) {
			<-release
		}
		return floodEvent("notifications/progress", "", `,"params":{"progressToken":"x","progress":1}`)
	}}
	src := newSource(t, mcp.Options{URL: s.start(t), Transport: mcp.StreamableHTTP})
	boom := toolsByName(t, src)["boom"]
	close(release)
	if got := callTool(t, boom, `{}`); !strings.Contains(got, "it sent too many messages that answer no call") {
		t.Errorf("the call: %q", got)
	}
}

// TestCloseUnderFlood closes a source while its server holds replies back: nothing of the session stays open.
func TestCloseUnderFlood(t *testing.T) {
	t.Parallel()
	var started atomic.Int64
	s := &floodServer{event: func(n int) string {
		if n > 100 {
			return strings.Repeat(": wait\n", 1<<10) // ends one write; the bound of messages is not reached
		}
		started.Add(1)
		return floodEvent("ping", fmt.Sprintf(`,"id":"p%d"`, n), "")
	}}
	s.sent.Store(maxFlooded - 1) // one write, then silence
	o := mcp.Options{Name: "shop", URL: s.start(t), Transport: mcp.StreamableHTTP, HTTP: newLocalClient(t), Logger: slog.New(slog.DiscardHandler)}
	src, err := mcp.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := src.ListTools(t.Context(), agentsvc.SessionKey{}); err != nil {
		t.Fatal(err)
	}
	dbtest.WaitUntil(t, "the pings are sent", func() bool { return started.Load() >= 100 })
	done := make(chan struct{})
	go func() { defer close(done); _ = src.Close() }()
	dbtest.WaitUntil(t, "the source is closed", func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
	dbtest.WaitUntil(t, "no request is in progress", func() bool { return s.active.Load() == 0 })
}

// TestEndlessPages lists tools in pages without end.
func TestEndlessPages(t *testing.T) {
	t.Parallel()
	for name, tool := range map[string]string{"empty": "", "the same tool": `{"name":"boom","inputSchema":{"type":"object"}}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &floodServer{page: func(n int64) string { return fmt.Sprintf(`{"tools":[%s],"nextCursor":"c%d"}`, tool, n) }}
			src := newSource(t, mcp.Options{URL: s.start(t), Transport: mcp.StreamableHTTP})
			if got, want := unavailableReason(t, src), "it returned no list of tools: its list of tools has more than 128 pages"; got != want {
				t.Errorf("reason %q, want %q", got, want)
			}
			if n := s.pages.Load(); n != 128 {
				t.Errorf("%d pages were requested", n)
			}
		})
	}
}

// TestFloodByProgram lets a program print pings without end, and read no reply.
func TestFloodByProgram(t *testing.T) {
	t.Parallel()
	src := newSource(t, programOptions(t, "pings"))
	list, err := src.ListTools(t.Context(), agentsvc.SessionKey{})
	if err != nil {
		t.Fatal(err)
	}
	var got string
	dbtest.WaitUntil(t, "the session ends", func() bool {
		got = callTool(t, list[0], `{}`)
		return strings.Contains(got, "too many")
	})
	if want := "it sent too many messages that answer no call: at most 256 at once and 32 a second are read"; !strings.Contains(got, want) {
		t.Errorf("a call: %q", got)
	}
}
