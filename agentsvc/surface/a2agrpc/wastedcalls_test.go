package a2agrpc_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
)

// TestWastedCalls checks that the server closes a connection whose client cancels calls, or calls what does not exist,
// again and again, unless it is a proxy's.
func TestWastedCalls(t *testing.T) {
	t.Parallel()
	h := newFixture(t, surface.Options{}, a2agrpc.Options{})
	behindProxy := newFixture(t, surface.Options{}, a2agrpc.Options{IsProxy: func(address string) bool { return strings.HasPrefix(address, "127.0.0.1:") }})
	for name, c := range map[string]struct {
		server       *fixture
		path         string
		ends, resets bool
	}{
		"cancelled":                 {h, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", false, true},
		"cancelled with all sent":   {h, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", true, true},
		"cancelled of an agent":     {h, "/lf.a2a.v1.A2AService/GetTask", true, true},
		"unknown method":            {h, "/lf.a2a.v1.A2AService/Nothing", true, false},
		"unknown service cancelled": {h, "/nothing", false, true},
		"proxy":                     {behindProxy, "/lf.a2a.v1.A2AService/Nothing", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := c.server.dialRaw(t)
			isOpen := func() bool {
				for i := range uint32(20_000) {
					err := conn.writeCall(2*i+1, c.path, "", c.ends)
					if c.resets && err == nil {
						err = conn.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
					}
					if err != nil {
						return false
					}
				}
				if err := conn.WritePing(false, [8]byte{}); err != nil {
					return false
				}
				for {
					f, err := conn.ReadFrame()
					if err != nil {
						return false
					}
					if ping, ok := f.(*http2.PingFrame); ok && ping.IsAck() {
						return true
					}
				}
			}
			if open, want := isOpen(), c.server == behindProxy; open != want {
				t.Errorf("after 20,000 calls the connection is open: %v, want %v", open, want)
			}
		})
	}
}

// TestUsualCalls checks that a client whose calls succeed keeps its connection, also if it cancels as many as there may
// be on it.
func TestUsualCalls(t *testing.T) {
	t.Parallel()
	h := newFixture(t, surface.Options{}, a2agrpc.Options{})
	var dials atomic.Int32
	conn := h.dialServer(t, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}))
	health := grpc_health_v1.NewHealthClient(conn)
	for range 3_000 {
		if _, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	for range surface.MaxStreams {
		if _, err := health.Watch(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	for range 300 {
		mirror, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
		if err == nil {
			err = mirror.CloseSend()
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _ = mirror.Recv() // its end
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("the client connected %d times", n)
	}
}
