package ratelimit

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"strconv"
	"time"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"stoa/tenancy/db"
)

const (
	// throttleCounters bounds the counters of a throttle, in memory and in the shared backend. Addresses are mapped to
	// counters by a keyed hash, so that an attacker cannot choose addresses that share another client's counter.
	throttleCounters = 1 << 15
	// sharedTimeout bounds how long a failure waits for the shared backend, maxSharedCounts how many wait at a time: an
	// attack must not occupy the database. Beyond both the count of this process alone decides.
	sharedTimeout   = time.Second
	maxSharedCounts = 4
)

// ThrottleOptions configure a [Throttle]. The zero value allows ten failures a minute, counted by this process alone.
type ThrottleOptions struct {
	// Failures is how many failures an address may have within Window; 0 means 10.
	Failures int
	// Window begins with the address's first failure, and in Shared with a multiple of Window; 0 means one minute.
	Window time.Duration
	// Shared counts for all processes together, in rows of Tenant, in addition to the count of each process; nil = none.
	Shared Backend
	Tenant db.ID
	// Key is the key of the hash, which processes that share their counters must have in common; nil = a random one.
	Key []byte
}

// Throttle refuses client addresses that failed too often. It counts in this process's memory, a few megabytes at most,
// and in a shared backend if there is one. While that fails, the count in memory still bounds each process. It is safe
// for concurrent use.
type Throttle struct {
	options ThrottleOptions
	limit   *limiter.Limiter
	// slots contains one value for each failure that is being counted in Shared.
	slots chan struct{}
}

// NewThrottle returns a throttle without any failures in memory.
func NewThrottle(o ThrottleOptions) *Throttle {
	if o.Failures == 0 {
		o.Failures = 10
	}
	if o.Window == 0 {
		o.Window = time.Minute
	}
	if o.Key == nil {
		o.Key = make([]byte, sha256.Size)
		rand.Read(o.Key) // it never returns an error
	}
	store := memory.NewStoreWithOptions(limiter.StoreOptions{Prefix: "throttle"})
	return &Throttle{
		options: o, limit: limiter.New(store, limiter.Rate{Limit: int64(o.Failures), Period: o.Window}),
		slots: make(chan struct{}, maxSharedCounts),
	}
}

// CountFailure counts one failure of address, an IP address with or without a port. It returns an
// [agentsvc.CodeExhausted] if the address has failed too often in the window before this failure.
func (t *Throttle) CountFailure(ctx context.Context, address string) error {
	key := t.counterKey(address)
	state, err := t.limit.Get(ctx, key)
	if err != nil {
		return err
	}
	if state.Reached {
		// The store truncates the end of the window to a second, so the window ends at most one second later.
		return NewExhaustedError(wholeSeconds(time.Until(time.Unix(state.Reset+1, 0))))
	}
	if t.options.Shared == nil {
		return nil
	}
	return t.countShared(ctx, key)
}

// countShared counts one failure for all processes. A backend that fails is no refusal. The caller's cancellation does
// not stop the count: a client could otherwise disconnect early and guess on.
func (t *Throttle) countShared(ctx context.Context, key string) error {
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	default:
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sharedTimeout)
	defer cancel()
	out, err := t.options.Shared.addCounters(ctx, t.options.Tenant, func(now time.Time) []counter {
		start := now.Truncate(t.options.Window)
		return []counter{{
			key: "throttle:" + key + ":" + strconv.FormatInt(start.Unix(), 36), start: start, end: start.Add(t.options.Window), amount: 1, limit: int64(t.options.Failures),
		}}
	})
	if err != nil || out.fits {
		return nil //nolint:nilerr // the count of this process alone decides
	}
	return NewExhaustedError(wholeSeconds(out.counters[0].end.Sub(out.now)))
}

// counterKey returns the key of the counter of address.
func (t *Throttle) counterKey(address string) string {
	mac := hmac.New(sha256.New, t.options.Key)
	mac.Write([]byte(ClientNetwork(address)))
	return strconv.FormatUint(binary.BigEndian.Uint64(mac.Sum(nil))%throttleCounters, 36)
}

// ClientNetwork returns the network that failures of a client are counted for, as text: an IPv4 address, or the /64
// network of an IPv6 address, since a client usually controls all of it. address may have a port. Other text is returned
// as it is.
func ClientNetwork(address string) string {
	if ap, err := netip.ParseAddrPort(address); err == nil {
		return addressNetwork(ap.Addr())
	}
	if a, err := netip.ParseAddr(address); err == nil {
		return addressNetwork(a)
	}
	return address
}

// addressNetwork returns the network of a as text: an IPv4 address, or an IPv6 network of 64 bits.
func addressNetwork(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a.String()
	}
	return netip.PrefixFrom(a, 64).Masked().String()
}
