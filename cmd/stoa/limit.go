package main

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"stoa/ratelimit"
)

// openCounts says where calls are counted that limits hold for. Redis is asked through a client of its own, which waits
// for nothing for long.
func (h *house) openCounts() error {
	var client redis.UniversalClient
	if h.settings.redis != "" {
		o, err := redis.ParseURL(h.settings.redis)
		if err != nil {
			return fmt.Errorf("--redis: %w", err)
		}
		client = redis.NewClient(ratelimit.Patient(o))
		h.closing(client.Close)
	}
	h.shared.Counts = ratelimit.NewCounts(h.db, client, h.log)
	return nil
}
