package a2agrpc

import (
	"context"

	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// healthServer is gRPC's health service, for the server as a whole. It serves as long as calls may come, as /ready does.
type healthServer struct {
	*health.Server
	ready func(context.Context) error
}

func newHealth(ready func(context.Context) error) *healthServer {
	return &healthServer{health.NewServer(), ready}
}

// Check looks how the server is, and tells watchers as well.
func (h *healthServer) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	now := grpc_health_v1.HealthCheckResponse_SERVING
	if h.ready(ctx) != nil {
		now = grpc_health_v1.HealthCheckResponse_NOT_SERVING
	}
	h.SetServingStatus("", now) // without effect once it is shut down
	return h.Server.Check(ctx, r)
}
