package ratelimit

import (
	"context"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"stoa/tenancy/db"
)

// Counts are the places in which a process counts.
type Counts struct {
	Memory   Place // for whoever wants it quick: Redis, or without one this process alone
	Shared   Place // for what must hold in all processes together: Redis, or without one the platform's database
	Platform Place // the platform's database
}

// NewCounts returns the places of a process. Client is of a Redis, see [Patient]; nil = there is none. While Redis fails,
// the platform's database counts.
func NewCounts(platform *db.DB, client redis.UniversalClient, log *slog.Logger) *Counts {
	c := &Counts{Platform: NewSQL(func(context.Context) (*db.DB, error) { return platform, nil })}
	c.Memory, c.Shared = NewMemory(), c.Platform
	if client != nil {
		c.Shared = OrElse(NewRedis(client), c.Platform, RedisPatience, "redis", log)
		c.Memory = c.Shared
	}
	return c
}
