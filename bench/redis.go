package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"stoa/bench/proc"
)

// redisServer is the Redis that stoa uses.
type redisServer struct {
	version string
	pid     int
}

var redisInfo = regexp.MustCompile(`(?m)^(redis_version|process_id):(\S+)`)

func openRedis(ctx context.Context, url string) (*redisServer, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("parse the Redis URL: %w", err)
	}
	client := redis.NewClient(o)
	defer func() { _ = client.Close() }()
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return nil, fmt.Errorf("ask Redis for its version: %w", err)
	}
	s := &redisServer{}
	for _, m := range redisInfo.FindAllStringSubmatch(info, -1) {
		if m[1] == "redis_version" {
			s.version = m[2]
			continue
		}
		if s.pid, err = strconv.Atoi(m[2]); err != nil {
			return nil, fmt.Errorf("read Redis's process id: %w", err)
		}
	}
	return s, nil
}

// cpu is what Redis has used so far; it fails if Redis runs on another machine.
func (s *redisServer) cpu() (time.Duration, error) { return proc.CPU(s.pid) }
