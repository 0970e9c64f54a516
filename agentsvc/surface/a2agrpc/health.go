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

// healthInterval is how often somebody looks how the server is while it is watched.
const healthInterval = time.Second

// healthServer is gRPC's health service, for the server as a whole. It serves as long as calls may come, as /ready does.
type healthServer struct {
	*health.Server
	checkReady func(context.Context) error
	checkedAt  atomic.Int64 // when somebody looked last, in milliseconds since 1970
}

func newHealthServer(ready func(context.Context) error) *healthServer {
	return &healthServer{Server: health.NewServer(), checkReady: ready}
}

// newServiceDesc describes h to gRPC. Its methods answer without reading what they are asked: anybody may call them, gRPC would receive
// a message of up to the size of an agent's before they see it, and there is only the server as a whole to ask about. What a
// client sends and nobody reads is bounded by [streamWindow].
func (h *healthServer) newServiceDesc() *grpc.ServiceDesc {
	return toStreamService(&grpc_health_v1.Health_ServiceDesc, func(_ string, run grpc.StreamHandler) grpc.StreamHandler {
		return func(_ any, stream grpc.ServerStream) error { return run(h, discardingStream{stream}) }
	})
}

// discardingStream is a stream whose messages are taken for empty ones.
type discardingStream struct{ grpc.ServerStream }

func (discardingStream) RecvMsg(any) error { return nil }

// Check looks how the server is, and tells watchers as well.
func (h *healthServer) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	h.updateStatus(ctx)
	return h.Server.Check(ctx, r)
}

// Watch tells how the server is, and of each change within about a second, until the client has heard enough.
func (h *healthServer) Watch(r *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	ctx, stop := context.WithCancel(stream.Context())
	h.updateStatus(ctx)
	var updates sync.WaitGroup
	updates.Go(func() { h.updateStatusLoop(ctx) })
	defer updates.Wait()
	defer stop()
	return h.Server.Watch(r, stream)
}

// updateStatusLoop looks how the server is until ctx ends. Where many watch, what one of them sees serves all.
func (h *healthServer) updateStatusLoop(ctx context.Context) {
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if now.Sub(time.UnixMilli(h.checkedAt.Load())) > healthInterval*9/10 {
				h.updateStatus(ctx)
			}
		}
	}
}

// updateStatus tells watchers how the server is. Whoever does not stay for the answer tells them nothing.
func (h *healthServer) updateStatus(ctx context.Context) {
	h.checkedAt.Store(time.Now().UnixMilli())
	now := grpc_health_v1.HealthCheckResponse_SERVING
	if h.checkReady(ctx) != nil {
		now = grpc_health_v1.HealthCheckResponse_NOT_SERVING
	}
	if ctx.Err() == nil {
		h.SetServingStatus("", now) // without effect once it is shut down
	}
}
