package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/redis/go-redis/v9"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"stoa/agentsvc/trail"
)

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
