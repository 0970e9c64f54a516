package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"stoa/agentsvc/egress"
)

// redisTimeout bounds each step of a command to Redis.
const redisTimeout = 3 * time.Second

// quietRedis drops the messages of the Redis client about its connections: the checks report them.
type quietRedis struct{}

// Printf implements the logger interface of go-redis.
func (quietRedis) Printf(context.Context, string, ...any) {}

// checkRedis reports whether Redis answers, whether it may delete the counts of limits, and its clock.
func (i *inspector) checkRedis(ctx context.Context) []Check {
	const name, clock = "redis", "redis_clock"
	if i.Settings.Database.RedisURL == "" {
		detail := "no --redis: processes signal each other through PostgreSQL"
		if i.usesSQLite() {
			detail = "no --redis: one process on SQLite needs none"
		}
		return []Check{skip(name, detail), skip(clock, "no --redis")}
	}
	options, err := redis.ParseURL(i.Settings.Database.RedisURL)
	if err != nil { // its text may have the password
		return []Check{fail(name, "--redis is no address of Redis", "write it as redis://:PASSWORD@HOST:6379/0, or rediss:// for TLS"), skip(clock, "Redis was not asked")}
	}
	options.MaxRetries, options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = -1, redisTimeout, redisTimeout, redisTimeout, redisTimeout
	redis.SetLogger(quietRedis{})
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	if err := client.Ping(ctx).Err(); err != nil {
		return []Check{fail(name, options.Addr+": "+describeRedisError(err), "start Redis, or correct --redis; without it calls are served, with text of other processes late and limits counted in the database"), skip(clock, "Redis does not answer")}
	}
	return []Check{checkEviction(ctx, client, options.Addr), i.checkRedisClock(ctx, client)}
}

// describeRedisError returns the reason why Redis did not answer a command, without text of the answer.
func describeRedisError(err error) string {
	var answered redis.Error
	switch {
	case errors.As(err, &answered) && strings.HasPrefix(answered.Error(), "NOAUTH"):
		return "it needs a password"
	case errors.As(err, &answered) && strings.HasPrefix(answered.Error(), "WRONGPASS"):
		return "it refuses the password"
	case errors.As(err, &answered):
		return "it refuses the command"
	case errors.Is(err, io.EOF):
		return "it ends the connection; perhaps it needs TLS (rediss://)"
	}
	return egress.PublicMessage(err)
}

// checkEviction reports whether Redis deletes keys when its memory is full. Services often forbid reading settings.
func checkEviction(ctx context.Context, client *redis.Client, addr string) Check {
	const name = "redis"
	settings, err := client.ConfigGet(ctx, "maxmemory*").Result()
	if err != nil {
		return pass(name, "%s answers; its settings are not readable", addr)
	}
	policy, bound := settings["maxmemory-policy"], settings["maxmemory"]
	if policy != "noeviction" && bound != "0" {
		return warn(name, fmt.Sprintf("%s deletes keys when its memory is full (maxmemory-policy %s)", addr, policy),
			"set maxmemory-policy noeviction: with the counts of limits their windows would begin again")
	}
	return pass(name, "%s answers; maxmemory-policy %s", addr, policy)
}

// checkRedisClock compares the clock of Redis with that of this process.
func (i *inspector) checkRedisClock(ctx context.Context, client *redis.Client) Check {
	began := i.now()
	other, err := client.Time(ctx).Result()
	if err != nil {
		return skip("redis_clock", "Redis does not show its time")
	}
	return checkClock("redis_clock", "Redis", other, began, i.now())
}
