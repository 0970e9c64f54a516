package a2agrpc

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// lookEvery is how often somebody looks how the server is while it is watched.
const lookEvery = time.Second

// healthServer is gRPC's health service, for the server as a whole. It serves as long as calls may come, as /ready does.
type healthServer struct {
	*health.Server
	ready  func(context.Context) error
	looked atomic.Int64 // when somebody looked last, in milliseconds since 1970
}

func newHealth(ready func(context.Context) error) *healthServer {
	return &healthServer{Server: health.NewServer(), ready: ready}
}

// service describes h to gRPC. Its methods answer without reading what they are asked: anybody may call them, gRPC would receive
// a message of up to the size of an agent's before they see it, and there is only the server as a whole to ask about. What a
// client sends and nobody reads is bounded by [streamWindow].
func (h *healthServer) service() *grpc.ServiceDesc {
	return asStreams(&grpc_health_v1.Health_ServiceDesc, func(_ string, run grpc.StreamHandler) grpc.StreamHandler {
		return func(_ any, stream grpc.ServerStream) error { return run(h, unread{stream}) }
	})
}

// unread is a stream whose messages are taken for empty ones.
type unread struct{ grpc.ServerStream }

func (unread) RecvMsg(any) error { return nil }

// Check looks how the server is, and tells watchers as well.
func (h *healthServer) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	h.look(ctx)
	return h.Server.Check(ctx, r)
}

// Watch tells how the server is, and of each change within about a second, until the client has heard enough.
func (h *healthServer) Watch(r *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	ctx, stop := context.WithCancel(stream.Context())
	h.look(ctx)
	var looking sync.WaitGroup
	looking.Go(func() { h.lookOn(ctx) })
	defer looking.Wait()
	defer stop()
	return h.Server.Watch(r, stream)
}

// lookOn looks how the server is until ctx ends. Where many watch, what one of them sees serves all.
func (h *healthServer) lookOn(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if now.Sub(time.UnixMilli(h.looked.Load())) > lookEvery*9/10 {
				h.look(ctx)
			}
		}
	}
}

// look tells watchers how the server is. Whoever does not stay for the answer tells them nothing.
func (h *healthServer) look(ctx context.Context) {
	h.looked.Store(time.Now().UnixMilli())
	now := grpc_health_v1.HealthCheckResponse_SERVING
	if h.ready(ctx) != nil {
		now = grpc_health_v1.HealthCheckResponse_NOT_SERVING
	}
	if ctx.Err() == nil {
		h.SetServingStatus("", now) // without effect once it is shut down
	}
}
