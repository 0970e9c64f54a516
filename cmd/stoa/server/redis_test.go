package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// TestTracesOfRedis checks that the Redis commands of a recorded call are recorded, without keys and values.
func TestTracesOfRedis(t *testing.T) {
	t.Parallel()
	url := os.Getenv("STOA_TEST_REDIS")
	if url == "" {
		t.Skip("NOT TESTED ON REDIS: STOA_TEST_REDIS is not set; run `make test`, or .ci/with-services go test ...")
	}
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	r := redis.NewClient(o)
	defer func() { _ = r.Close() }()
	r.AddHook(redisTracer{})
	seen := tracetest.NewSpanRecorder()
	ctx, _ := sdk.NewTracerProvider(sdk.WithSpanProcessor(seen)).Tracer("test").Start(t.Context(), "call")
	for _, ctx := range []context.Context{ctx, t.Context()} {
		if err := r.Get(ctx, "canary").Err(); !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		if _, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Exists(ctx, "canary")
			p.Exists(ctx, "canary")
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]int{} // a new connection sends commands of its own
	for _, s := range seen.Ended() {
		got[s.Name()+" "+s.Status().Code.String()]++
		if strings.Contains(fmt.Sprint(s.Attributes()), "canary") {
			t.Errorf("%s tells of keys: %v", s.Name(), s.Attributes())
		}
	}
	if got["get Unset"] != 1 || got["pipeline Unset"] != 1 {
		t.Errorf("recorded are %v, want one get and one pipeline", got)
	}
}
