package ratelimit

import (
	"context"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"stoa/tenancy/db"
)

// Backends are the backends of a process, by the guarantee that a rule needs.
type Backends struct {
	// Memory is the fastest one: Redis, or without Redis this process's memory, which does not count for other
	// processes.
	Memory Backend
	// Shared counts for all processes together: Redis, or without Redis the platform's database.
	Shared Backend
	// Platform is the platform's database.
	Platform Backend
}

// NewBackends returns the backends of a process. client is nil without Redis; its options must come from
// [BoundRedisOptions]. While Redis fails, the platform's database counts instead.
func NewBackends(platform *db.DB, client redis.UniversalClient, log *slog.Logger) *Backends {
	c := &Backends{Platform: NewSQL(func(context.Context) (*db.DB, error) { return platform, nil })}
	c.Memory, c.Shared = NewMemory(), c.Platform
	if client != nil {
		c.Shared = NewFallback(NewRedis(client), c.Platform, RedisTimeout, "redis", log)
		c.Memory = c.Shared
	}
	return c
}
