package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"stoa/agentsvc"
)

// TestUnsolicitedRate checks how many messages, and how many bytes, are read at once and over time.
func TestUnsolicitedRate(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		bytes       int // of one message
		first, then int // messages at once, and after ten seconds more
		want        error
	}{
		"small messages": {10, 256, 256, errTooManyUnsolicited},
		"64 KiB each":    {64 << 10, 16, 10, errTooMuchUnsolicited},
		"2 MiB":          {2 << 20, 0, 0, errTooMuchUnsolicited},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				count := func(u *unsolicited) (n int) {
					for u.add(1, tt.bytes) == nil {
						n++
					}
					return n
				}
				ctx, end := context.WithCancelCause(t.Context())
				u := &unsolicited{end: end}
				first := count(u)
				time.Sleep(10 * time.Second)
				if diff := cmp.Diff([]int{tt.first, tt.then}, []int{first, count(u)}); diff != "" {
					t.Error(diff)
				}
				if cause := context.Cause(ctx); !errors.Is(cause, tt.want) {
					t.Errorf("the session ended with %v", cause)
				}
			})
		})
	}
}

// scriptedConnection is a connection that returns messages in order.
type scriptedConnection struct {
	sdk.Connection
	messages []jsonrpc.Message
}

func (c *scriptedConnection) Connect(context.Context) (sdk.Connection, error) { return c, nil }

func (c *scriptedConnection) Read(context.Context) (jsonrpc.Message, error) {
	if len(c.messages) == 0 {
		return nil, io.EOF
	}
	m := c.messages[0]
	c.messages = c.messages[1:]
	return m, nil
}

func (c *scriptedConnection) Write(context.Context, jsonrpc.Message) error { return nil }

// TestAwaitedAnswers checks that the answers to calls are not counted, and all others are.
func TestAwaitedAnswers(t *testing.T) {
	t.Parallel()
	large := &jsonrpc.Response{Result: json.RawMessage(make([]byte, 6<<20))}
	id, err := jsonrpc.MakeID("a")
	if err != nil {
		t.Fatal(err)
	}
	conn := &scriptedConnection{messages: []jsonrpc.Message{large, large, large}}
	c := newConnection()
	bounded, err := (&boundedTransport{conn, &c.unsolicited, replyTimeout}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := bounded.Write(t.Context(), &jsonrpc.Request{ID: id, Method: "tools/call"}); err != nil {
			t.Fatal(err)
		}
	}
	var got []error
	for range 3 {
		_, err := bounded.Read(t.Context())
		got = append(got, err)
	}
	if got[0] != nil || got[1] != nil || !errors.Is(got[2], errTooMuchUnsolicited) {
		t.Errorf("the answers were read with %v", got)
	}
}

// TestReplyTimeout uses a server that sends one ping and does not accept the reply: the session ends.
func TestReplyTimeout(t *testing.T) {
	t.Parallel()
	waits := make(chan struct{}, 8)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"ping\"}\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		var request struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		_ = json.NewDecoder(r.Body).Decode(&request)
		result := ""
		switch request.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`
		case "tools/list":
			result = `{"tools":[]}`
		case "server/discover":
			w.WriteHeader(http.StatusNotFound)
			return
		case "":
			waits <- struct{}{}
			<-r.Context().Done()
			return
		default:
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, request.ID, result)
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	s, err := New(Options{Name: "shop", URL: srv.URL, HTTP: client, Transport: StreamableHTTP, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	s.replyTimeout = 50 * time.Millisecond
	if _, err := s.ListTools(t.Context(), agentsvc.SessionKey{}); err != nil && !errors.Is(err, errReplyTimeout) {
		t.Fatal(err)
	}
	<-waits
	s.shared.mu.Lock()
	c := s.shared.conn
	s.shared.mu.Unlock()
	if c == nil {
		return // the bound was exceeded before the tools were listed
	}
	<-c.done
	if got := c.exceededBound(); got != errReplyTimeout {
		t.Errorf("the session ended with %v", got)
	}
}
