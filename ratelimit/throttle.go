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

// throttleCounters bounds the memory of a throttle. Addresses are mapped to counters by a hash with a random seed, so
// that an attacker cannot choose addresses that share another client's counter.
const throttleCounters = 1 << 15

// ThrottleOptions configure a [Throttle]. The zero value allows ten failures a minute.
type ThrottleOptions struct {
	// Failures is how many failures an address may have within Window; 0 means 10.
	Failures int
	// Window begins with the address's first failure; 0 means one minute.
	Window time.Duration
}

// Throttle refuses client addresses that failed too often. It counts in this process's memory, a few megabytes at most,
// and is safe for concurrent use. Checking and counting are separate, so attempts at the same moment may together
// exceed the limit.
type Throttle struct {
	limit *limiter.Limiter
	seed  maphash.Seed
}

// NewThrottle returns a throttle without any failures.
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

// AllowAttempt returns an [agentsvc.CodeExhausted] while address has failed too often. It does not count.
func (t *Throttle) AllowAttempt(address string) error {
	state, err := t.limit.Peek(context.Background(), t.counterKey(address))
	if err != nil {
		return err
	}
	if state.Remaining > 0 {
		return nil
	}
	// The store truncates the end of the window to a second, so the window ends at most one second later.
	return NewExhaustedError(wholeSeconds(time.Until(time.Unix(state.Reset+1, 0))))
}

// CountFailure counts one failure of address.
func (t *Throttle) CountFailure(address string) error {
	_, err := t.limit.Get(context.Background(), t.counterKey(address))
	return err
}

// counterKey returns the key of the counter of address, an IP address with or without a port. An IPv6 address counts as
// its /64 network, since a client usually controls all of it.
func (t *Throttle) counterKey(address string) string {
	if ap, err := netip.ParseAddrPort(address); err == nil {
		address = addressNetwork(ap.Addr())
	} else if a, err := netip.ParseAddr(address); err == nil {
		address = addressNetwork(a)
	}
	return strconv.FormatUint(maphash.String(t.seed, address)%throttleCounters, 36)
}

// addressNetwork returns the network of a as text: an IPv4 address, or an IPv6 network of 64 bits.
func addressNetwork(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a.String()
	}
	return netip.PrefixFrom(a, 64).Masked().String()
}
