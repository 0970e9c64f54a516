package main

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"stoa/ratelimit"
)

// openRateCounts opens the counters of rate limits: in Redis if it is configured, else in the database. Redis is
// reached through a client of its own with short timeouts and no retries, because every call of an app waits for its
// counters.
func (h *server) openRateCounts() error {
	var client redis.UniversalClient
	if h.settings.redisURL != "" {
		o, err := redis.ParseURL(h.settings.redisURL)
		if err != nil {
			return fmt.Errorf("--redis: %w", err)
		}
		// Not h.redis: the subscriptions of the bus need longer timeouts and retries.
		client = redis.NewClient(ratelimit.BoundRedisOptions(o))
		h.addCloser(client.Close)
	}
	h.deps.RateCounts = ratelimit.NewBackends(h.db, client, h.log)
	return nil
}
