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

// healthInterval is how often readiness is checked while at least one client watches it.
const healthInterval = time.Second

// healthServer is gRPC's health service for the server as a whole: SERVING exactly when /ready answers 200. The
// embedded server holds the status and informs watchers; this type updates it.
type healthServer struct {
	*health.Server
	checkReady func(context.Context) error
	checkedAt  atomic.Int64 // time of the last check in milliseconds since 1970; shared by all watchers
}

func newHealthServer(ready func(context.Context) error) *healthServer {
	return &healthServer{Server: health.NewServer(), checkReady: ready}
}

// newServiceDesc returns the service description of h. Its methods do not read their request: the service needs no
// credential, gRPC would receive a request of up to the size of an agent's message first, and the only subject is
// the server as a whole. Unread data is bounded by [streamWindow].
func (h *healthServer) newServiceDesc() *grpc.ServiceDesc {
	return toStreamService(&grpc_health_v1.Health_ServiceDesc, func(_ string, run grpc.StreamHandler) grpc.StreamHandler {
		return func(_ any, stream grpc.ServerStream) error { return run(h, discardingStream{stream}) }
	})
}

// discardingStream leaves every received message empty and does not receive it.
type discardingStream struct{ grpc.ServerStream }

func (discardingStream) RecvMsg(any) error { return nil }

// Check updates the status and returns it.
func (h *healthServer) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	h.updateStatus(ctx)
	return h.Server.Check(ctx, r)
}

// Watch sends the status and each change, within about a second, until the client ends the call.
func (h *healthServer) Watch(r *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	ctx, stop := context.WithCancel(stream.Context())
	h.updateStatus(ctx)
	var updates sync.WaitGroup
	updates.Go(func() { h.updateStatusLoop(ctx) })
	defer updates.Wait()
	defer stop()
	return h.Server.Watch(r, stream)
}

// updateStatusLoop updates the status every healthInterval until ctx ends. Each watcher runs one loop; a loop skips
// its turn if another one has just checked, so that many watchers cause one check per interval.
func (h *healthServer) updateStatusLoop(ctx context.Context) {
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			// Nine tenths, so that the ticks of two loops that run almost together do not both check.
			if now.Sub(time.UnixMilli(h.checkedAt.Load())) > healthInterval*9/10 {
				h.updateStatus(ctx)
			}
		}
	}
}

// updateStatus checks readiness and informs watchers. If ctx has ended, the error may be the caller's cancellation
// and not the server's state, so the result is ignored.
func (h *healthServer) updateStatus(ctx context.Context) {
	h.checkedAt.Store(time.Now().UnixMilli())
	now := grpc_health_v1.HealthCheckResponse_SERVING
	if h.checkReady(ctx) != nil {
		now = grpc_health_v1.HealthCheckResponse_NOT_SERVING
	}
	if ctx.Err() == nil {
		h.SetServingStatus("", now) // no effect after Shutdown: a draining server stays NOT_SERVING
	}
}
