package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"stoa/agentsvc/trail"
)

// parseRedisURL returns the options of a client of the Redis at url. Its handshake has no command that Redis 7.0 lacks,
// such as CLIENT SETINFO and CLIENT MAINT_NOTIFICATIONS: their errors would be counted as failures of Redis.
func parseRedisURL(url string) (*redis.Options, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o, nil
}

// redisLogger logs the messages of the Redis client at debug level: the client reports every attempt to reach an
// unavailable server, and the users of the client already report the outage once.
type redisLogger struct{ log *slog.Logger }

// Printf implements the logger interface of go-redis.
func (l redisLogger) Printf(_ context.Context, format string, args ...any) {
	l.log.Debug("redis: " + fmt.Sprintf(format, args...))
}

// redisTracer records the Redis commands of traced calls as spans, without keys and values, which may be personal
// data.
type redisTracer struct{}

// DialHook implements [redis.Hook]. Connecting is not recorded: it is not part of one call.
func (redisTracer) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements [redis.Hook].
func (redisTracer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !trail.IsRecorded(ctx) {
			return next(ctx, cmd)
		}
		ctx, span := trail.StartSpan(ctx, cmd.Name(), redisAttributes, trace.WithSpanKind(trace.SpanKindClient))
		err := next(ctx, cmd)
		trail.EndSpan(span, ignoreRedisNil(err))
		return err
	}
}

// ProcessPipelineHook implements [redis.Hook]. A pipeline is one span with the number of its commands.
func (redisTracer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !trail.IsRecorded(ctx) {
			return next(ctx, cmds)
		}
		ctx, span := trail.StartSpan(ctx, "pipeline", redisAttributes, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(semconv.DBOperationBatchSize(len(cmds))))
		err := next(ctx, cmds)
		trail.EndSpan(span, ignoreRedisNil(err))
		return err
	}
}

// redisAttributes are common to all Redis spans; they are built once.
var redisAttributes = trace.WithAttributes(semconv.DBSystemNameRedis)

// ignoreRedisNil returns err, or nil for [redis.Nil]: a missing key is an answer and not a failure of the call.
func ignoreRedisNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// redisMeter observes the duration and the error of each command and pipeline.
type redisMeter func(ctx context.Context, took time.Duration, err error)

// DialHook implements [redis.Hook]. The command that waits for the connection is observed.
func (m redisMeter) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (m redisMeter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmd)
		m(ctx, time.Since(began), ignoreRedisNil(err))
		return err
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (m redisMeter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmds)
		m(ctx, time.Since(began), ignoreRedisNil(err))
		return err
	}
}

// observeRedis counts the commands of a client if metrics are enabled. use is what it is used for.
func (t telemetry) observeRedis(client *redis.Client, use string) {
	if t.metrics != nil {
		client.AddHook(redisMeter(t.metrics.NewRedisObserver(use)))
	}
}
