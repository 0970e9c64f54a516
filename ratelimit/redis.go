package ratelimit

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"stoa/tenancy/db"
)

// RedisTimeout is how long a call waits for Redis. It is far above the usual fraction of a millisecond: a process that
// is short of CPU must not take its own delay for an outage, since other processes do not see what it then counts
// elsewhere.
const RedisTimeout = 250 * time.Millisecond

// BoundRedisOptions returns a copy of o for a client whose operations all end within [RedisTimeout] and are never
// repeated: a repeated script could count a call twice.
func BoundRedisOptions(o *redis.Options) *redis.Options {
	p := *o
	p.DialTimeout, p.ReadTimeout, p.WriteTimeout, p.PoolTimeout = RedisTimeout, RedisTimeout, RedisTimeout, RedisTimeout
	p.MaxRetries, p.DialerRetries, p.ContextTimeoutEnabled = -1, 1, true
	return &p
}

// Redis is a [Backend] for all processes that share a Redis; windows follow its clock.
type Redis struct {
	coalescer coalescer
	clock     clock
}

// NewRedis returns a backend over client, whose options must come from [BoundRedisOptions].
func NewRedis(client redis.UniversalClient) *Redis {
	return &Redis{coalescer: coalescer{client: client}}
}

// expiryGrace is how much longer than its window a counter is kept, for clocks that differ by less.
const expiryGrace = time.Minute

// addScript adds to all counters (KEYS), or to none, up to a number of times. Redis runs a script atomically. ARGV
// holds: the common window of the counters, from and till, in milliseconds; for each counter the amount, the limit (""
// for none) and the time of its expiry in milliseconds; and last the number of identical calls. It returns its time in
// milliseconds, how many calls were counted, and, unless the time is outside of the window, the counts before. A key
// expires from its first use on; '%.0f' avoids Lua's exponent notation for large numbers.
var addScript = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if now < tonumber(ARGV[1]) or now >= tonumber(ARGV[2]) then return {now, 0} end
local times = tonumber(ARGV[#ARGV])
local used = redis.call('MGET', unpack(KEYS))
for i = 1, #KEYS do
	used[i] = tonumber(used[i] or '0')
	local amount, limit = tonumber(ARGV[3 * i]), ARGV[3 * i + 1]
	if limit ~= '' then
		local room = tonumber(limit) - used[i]
		if amount > room then
			times = 0
		elseif amount > 0 then
			times = math.min(times, math.floor(room / amount))
		end
	end
end
if times > 0 then
	for i = 1, #KEYS do
		local change = math.max(times * tonumber(ARGV[3 * i]), -used[i])
		if change ~= 0 then
			redis.call('INCRBY', KEYS[i], string.format('%.0f', change))
			if used[i] == 0 then redis.call('PEXPIREAT', KEYS[i], ARGV[3 * i + 2]) end
		end
	end
end
return {now, times, unpack(used)}`)

// addCounters implements [Backend].
func (r *Redis) addCounters(ctx context.Context, tenant db.ID, at func(now time.Time) []counter) (outcome, error) {
	return r.clock.addByClock(at, func(cs []counter) (outcome, error) {
		from, till := commonWindow(cs)
		keys, args := make([]string, len(cs)), []any{from.UnixMilli(), till.UnixMilli()}
		for i, c := range cs {
			// The braces are a hash tag: all counters of a tenant are on one node of a Redis cluster, as a script requires.
			keys[i] = "stoa:{" + string(tenant) + "}:rate:" + c.key
			var limit any = c.limit
			if c.limit == unlimited {
				limit = ""
			}
			args = append(args, c.amount, limit, c.end.Add(expiryGrace).UnixMilli())
		}
		got, err := r.coalescer.runScript(ctx, keys, args...)
		switch {
		case err != nil:
			return outcome{}, fmt.Errorf("count in Redis: %w", err)
		case len(got) != 2 && len(got) != 2+len(cs):
			return outcome{}, fmt.Errorf("count in Redis: %d numbers answered for %d counters", len(got), len(cs))
		}
		return outcome{now: time.UnixMilli(got[0]).UTC(), fits: got[1] == 1, used: got[2:]}, nil
	})
}
