package mcp

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestChangeDuringFailedListing checks that a notification of a change which arrives during a failing request of the
// list is still known afterwards, so that the next call asks again.
func TestChangeDuringFailedListing(t *testing.T) {
	t.Parallel()
	s, err := New(Options{Name: "shop", URL: "http://127.0.0.1:1", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	c := newConnection()
	server := sdk.NewServer(&sdk.Implementation{Name: "shop", Version: "1"}, &sdk.ServerOptions{Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}}})
	server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			if method == "tools/list" {
				c.toolsChanged.Store(true) // as the handler of the notification does
				return nil, errors.New("not now")
			}
			return next(ctx, method, req)
		}
	})
	clientSide, serverSide := sdk.NewInMemoryTransports()
	session, err := server.Connect(t.Context(), serverSide, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	if c.session, err = sdk.NewClient(&sdk.Implementation{Name: "stoa", Version: "1"}, nil).Connect(t.Context(), clientSide, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.session.Close() })
	if err := s.shared.refreshList(t.Context(), c); err == nil {
		t.Error("the listing did not fail")
	}
	if !c.toolsChanged.Load() {
		t.Error("the notification is lost")
	}
}
