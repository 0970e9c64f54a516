package main

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"stoa/ratelimit"
)

// openRateCounts says where calls are counted that limits hold for. Redis is asked through a client of its own, which waits
// for nothing for long.
func (h *server) openRateCounts() error {
	var client redis.UniversalClient
	if h.settings.redisURL != "" {
		o, err := redis.ParseURL(h.settings.redisURL)
		if err != nil {
			return fmt.Errorf("--redis: %w", err)
		}
		client = redis.NewClient(ratelimit.BoundRedisOptions(o))
		h.addCloser(client.Close)
	}
	h.deps.RateCounts = ratelimit.NewBackends(h.db, client, h.log)
	return nil
}
