package mcp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"stoa/agentsvc/tool/mcp"
)

// TestCutOff makes a server break off a call or redirect it: the call is made once, and the next one succeeds.
func TestCutOff(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(w http.ResponseWriter, r *http.Request){
		"without a word": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"in the middle": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
		"redirected inside": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusTemporaryRedirect)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var callCount atomic.Int64
			next := newStreamableHandler(t, newShopServer(), &sdk.StreamableHTTPOptions{JSONResponse: true})
			srv := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if strings.Contains(string(body), `"tools/call"`) && callCount.Add(1) == 1 {
					cut(w, r)
					return
				}
				r.Body = io.NopCloser(strings.NewReader(string(body)))
				next.ServeHTTP(w, r)
			}))
			src := newSource(t, mcp.Options{URL: srv.URL, Transport: mcp.StreamableHTTP})
			echo := toolsByName(t, src)["echo"]
			if got := callTool(t, echo, `{}`); !strings.HasPrefix(got, "error: its server gave no result: ") || !strings.HasSuffix(got, "; whether the call took effect is unknown") {
				t.Error(got)
			}
			if n := callCount.Load(); n != 1 {
				t.Errorf("the call was made %d times", n)
			}
			if got := callTool(t, echo, `{"a":1}`); got != `{"a":1}` {
				t.Errorf("the next call: %q", got)
			}
		})
	}
}

// TestServerUnreachable checks that the result states that nothing ran if the server cannot be reached any more.
func TestServerUnreachable(t *testing.T) {
	t.Parallel()
	next := newStreamableHandler(t, newShopServer(), &sdk.StreamableHTTPOptions{JSONResponse: true})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Without a kept connection, the client notices only by a call that the server is gone.
		w.Header().Set("Connection", "close")
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	echo := toolsByName(t, newSource(t, mcp.Options{URL: srv.URL, Transport: mcp.StreamableHTTP}))["echo"]
	srv.Close()
	if got := callTool(t, echo, `{}`); got != "error: its server is not available: the connection was refused" {
		t.Error(got)
	}
}

// TestFifty checks that fifty calls of one server run at the same time, over every transport.
func TestFifty(t *testing.T) {
	t.Parallel()
	const width = 50
	for _, transport := range []mcp.Transport{mcp.StreamableHTTP, mcp.SSE} {
		t.Run(string(transport), func(t *testing.T) {
			t.Parallel()
			var inside atomic.Int64
			all := make(chan struct{})
			s := newShopServer()
			addTool(s, "meet", "", func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				if inside.Add(1) == width {
					close(all)
				}
				select {
				case <-all:
					return textResult("met"), nil
				case <-ctx.Done():
				case <-time.After(time.Minute):
				}
				return textResult("alone"), nil
			})
			handler := newStreamableHandler(t, s)
			if transport == mcp.SSE {
				handler = sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return s }, nil)
			}
			meet := toolsByName(t, newSource(t, mcp.Options{URL: startServer(t, handler).URL, Transport: transport}))["meet"]
			var met atomic.Int64
			var calls sync.WaitGroup
			for range width {
				calls.Go(func() {
					if callTool(t, meet, `{}`) == "met" {
						met.Add(1)
					}
				})
			}
			calls.Wait()
			if met.Load() != width {
				t.Errorf("%d of %d calls met the others", met.Load(), width)
			}
		})
	}
}
