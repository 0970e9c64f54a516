package ratelimit

import (
	"context"
	"hash/maphash"
	"net/netip"
	"strconv"
	"time"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
)

// throttleCounters bounds the memory of a throttle, however many addresses an attacker has. Addresses share a counter by
// chance alone: the seed of the hash is drawn at start.
const throttleCounters = 1 << 15

// ThrottleOptions tune a [Throttle]. The zero value allows ten failures a minute.
type ThrottleOptions struct {
	Failures int           // how many failures an address may have within Window; 0 = 10
	Window   time.Duration // counted from the address's first failure; 0 = one minute
}

// Throttle turns away client addresses that fail too often. It lives in this process's memory, a few megabytes at
// most, and is safe for concurrent use. Attempts that are under way at the same moment may each still count as the last
// one allowed.
type Throttle struct {
	limit *limiter.Limiter
	seed  maphash.Seed
}

// NewThrottle returns a throttle that has seen no failure.
func NewThrottle(o ThrottleOptions) *Throttle {
	if o.Failures == 0 {
		o.Failures = 10
	}
	if o.Window == 0 {
		o.Window = time.Minute
	}
	store := memory.NewStoreWithOptions(limiter.StoreOptions{Prefix: "throttle"})
	return &Throttle{
		limit: limiter.New(store, limiter.Rate{Limit: int64(o.Failures), Period: o.Window}),
		seed:  maphash.MakeSeed(),
	}
}

// AllowAttempt returns an [ExhaustedError] while address has failed too often. It counts nothing.
func (t *Throttle) AllowAttempt(address string) error {
	state, err := t.limit.Peek(context.Background(), t.counterKey(address))
	if err != nil {
		return err
	}
	if state.Remaining > 0 {
		return nil
	}
	// The store keeps the end of the window cut to the second, so the window is over one second later at most.
	return newExhaustedError(time.Unix(state.Reset+1, 0))
}

// CountFailure counts one failure of address.
func (t *Throttle) CountFailure(address string) error {
	_, err := t.limit.Get(context.Background(), t.counterKey(address))
	return err
}

// counterKey names the counter of address, an IP address with or without a port. An IPv6 client is its /64 network, since
// every client has one whole to itself.
func (t *Throttle) counterKey(address string) string {
	if ap, err := netip.ParseAddrPort(address); err == nil {
		address = addressNetwork(ap.Addr())
	} else if a, err := netip.ParseAddr(address); err == nil {
		address = addressNetwork(a)
	}
	return strconv.FormatUint(maphash.String(t.seed, address)%throttleCounters, 36)
}

func addressNetwork(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a.String()
	}
	return netip.PrefixFrom(a, 64).Masked().String()
}
