package ratelimit

import (
	"context"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"stoa/tenancy/db"
)

// Backends are the places in which a process counts.
type Backends struct {
	Memory   Backend // for whoever wants it quick: Redis, or without one this process alone
	Shared   Backend // for what must hold in all processes together: Redis, or without one the platform's database
	Platform Backend // the platform's database
}

// NewBackends returns the places of a process. Client is of a Redis, see [BoundRedisOptions]; nil = there is none. While Redis fails,
// the platform's database counts.
func NewBackends(platform *db.DB, client redis.UniversalClient, log *slog.Logger) *Backends {
	c := &Backends{Platform: NewSQL(func(context.Context) (*db.DB, error) { return platform, nil })}
	c.Memory, c.Shared = NewMemory(), c.Platform
	if client != nil {
		c.Shared = NewFallback(NewRedis(client), c.Platform, RedisTimeout, "redis", log)
		c.Memory = c.Shared
	}
	return c
}
