package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"stoa/cmd/stoa/server/metrics"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/signal"
)

// TestTracesOfRedis checks that the Redis commands of a recorded call are recorded, without keys and values.
func TestTracesOfRedis(t *testing.T) {
	t.Parallel()
	o, err := redis.ParseURL(dbtest.RequireRedisURL(t))
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

// TestRedisHandshake sends a signal through a healthy Redis of a version that does not have every command of the client's
// handshake: no error is counted.
func TestRedisHandshake(t *testing.T) {
	t.Parallel()
	url := dbtest.RequireRedisURL(t)
	recorder, err := metrics.NewRecorder(false)
	if err != nil {
		t.Fatal(err)
	}
	var opened closers
	t.Cleanup(func() { _ = opened.close() })
	o := Options{Log: slog.New(slog.DiscardHandler), Settings: Settings{Database: DatabaseSettings{RedisURL: url}}}
	var buses [2]*signal.Bus
	for i := range buses {
		if buses[i], err = openBus(o, nil, telemetry{metrics: recorder}, &opened); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- buses[i].Run(ctx) }()
		t.Cleanup(func() { cancel(); <-ended })
	}
	var arrived atomic.Bool
	t.Cleanup(buses[1].WatchTopic("handshake", func(key string) {
		if key != "" { // "" is for each connection
			arrived.Store(true)
		}
	}))
	dbtest.WaitUntil(t, "a signal arrives", func() bool {
		buses[0].Publish("handshake", "key")
		return arrived.Load()
	})
	w := httptest.NewRecorder()
	recorder.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, `stoa_redis_errors_total{`) && !strings.HasSuffix(line, " 0\n") {
			t.Errorf("a healthy Redis has errors: %s", line)
		}
	}
}

// TestMeterOfRedis checks that commands and pipelines are observed, with the errors of those that fail.
func TestMeterOfRedis(t *testing.T) {
	t.Parallel()
	down := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer func() { _ = down.Close() }()
	var failures int
	down.AddHook(redisMeter(func(_ context.Context, took time.Duration, err error) {
		if err == nil || took <= 0 {
			t.Errorf("a command that failed is observed with %v and %v", took, err)
		}
		failures++
	}))
	_ = down.Get(t.Context(), "x").Err()
	_, _ = down.Pipelined(t.Context(), func(p redis.Pipeliner) error { p.Get(t.Context(), "x"); return nil })
	if failures != 2 {
		t.Errorf("%d failures are observed, want 2", failures)
	}
	answer := func(context.Context, redis.Cmder) error { return redis.Nil }
	observed := false
	_ = redisMeter(func(_ context.Context, _ time.Duration, err error) { observed = err == nil }).ProcessHook(answer)(t.Context(), redis.NewCmd(t.Context()))
	if !observed {
		t.Error("a missing key is observed as an error, or not at all")
	}
}
