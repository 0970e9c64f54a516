package a2agrpc_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
)

// TestWatch checks that clients that watch the health see readiness change and return, without anybody calling
// Check.
func TestWatch(t *testing.T) {
	t.Parallel()
	ready := &atomic.Bool{}
	h := newFixture(t, surface.Options{}, a2agrpc.Options{Ready: func(context.Context) error {
		if ready.Load() {
			return nil
		}
		return errors.New("the database is gone")
	}})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var watchers []grpc_health_v1.Health_WatchClient
	for range 2 {
		w, err := grpc_health_v1.NewHealthClient(h.conn).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		watchers = append(watchers, w)
	}
	for _, is := range []bool{false, true, false, true} {
		want := grpc_health_v1.HealthCheckResponse_NOT_SERVING
		if is {
			want = grpc_health_v1.HealthCheckResponse_SERVING
		}
		ready.Store(is)
		for i, w := range watchers {
			if got, err := w.Recv(); err != nil || got.GetStatus() != want {
				t.Fatalf("watcher %d sees %v, %v, want %v", i, got, err, want)
			}
		}
	}
}
