package capacity_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/tenancy/db"
)

const mib = 1 << 20

// TestShares checks that an app gets as much as it leaves free, waits only for bytes of its own app, and fails after
// MaxWait.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reserved int64
		p := capacity.NewPool(64*mib, func(n int64) { reserved = n })
		add := func(app db.ID, n int64) (h *capacity.MemoryReservation, waited time.Duration, err error) {
			began := time.Now()
			h = p.NewReservation(app, 1)
			err = h.ReserveBytes(t.Context(), n)
			return h, time.Since(began), err
		}
		first, waited, err := add("acme", 32*mib)
		if err != nil || waited != 0 {
			t.Fatalf("half of an empty pool: %v after %v", err, waited)
		}
		if _, waited, err := add("acme", mib); !errors.Is(err, capacity.ErrFull) || waited != capacity.MaxWait {
			t.Errorf("more than its share: %v after %v, want ErrFull after %v", err, waited, capacity.MaxWait)
		}
		if _, waited, err := add("globex", 33*mib); !errors.Is(err, agentsvc.CodeTooLarge) || waited != 0 {
			t.Errorf("more than anybody may have: %v after %v", err, waited)
		}
		globex, waited, err := add("globex", 16*mib)
		if err != nil || waited != 0 {
			t.Errorf("another app's share: %v after %v", err, waited)
		}
		time.AfterFunc(3*time.Second, first.ReleaseBytes)
		second, waited, err := add("acme", 20*mib)
		if err != nil || waited != 3*time.Second {
			t.Errorf("the next of the same app: %v after %v, want when the first is released", err, waited)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.NewReservation("acme", 1).ReserveBytes(gone, 8*mib); !errors.Is(err, context.Canceled) {
			t.Errorf("the caller is gone: %v", err)
		}
		for _, h := range []*capacity.MemoryReservation{first, second, second, globex} { // releasing again has no effect
			h.ReleaseBytes()
		}
		if reserved != 0 {
			t.Errorf("%d bytes are taken in the end", reserved)
		}
	})
}

// TestWaitersOfOthers checks that a waiting request does not delay fitting requests of other apps, and keeps the order
// within its own app.
func TestWaitersOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := capacity.NewPool(64*mib, nil)
		acme := p.NewReservation("acme", 1)
		if err := acme.ReserveBytes(t.Context(), 30*mib); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []int64
		for _, n := range []int64{10, 1} { // the second alone would fit
			go func() {
				h := p.NewReservation("acme", 1)
				if err := h.ReserveBytes(t.Context(), n*mib); err == nil {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, n)
				}
			}()
			synctest.Wait()
		}
		if err := p.NewReservation("globex", 1).ReserveBytes(t.Context(), 8*mib); err != nil || len(order) > 0 {
			t.Errorf("another app: %v; went before: %v", err, order)
		}
		acme.ReleaseBytes()
		synctest.Wait()
		if len(order) != 2 {
			t.Errorf("those who waited: %v", order)
		}
	})
}

// TestReservation checks that a reservation takes nothing from the pool while it is small, and then grows by its
// factor, in steps.
func TestReservation(t *testing.T) {
	var reserved int64
	p := capacity.NewPool(64*mib, func(n int64) { reserved = n })
	h := p.NewReservation("acme", 2)
	for n, want := range map[int64]int64{capacity.FreeBytes: 0, capacity.FreeBytes + 1: 256 << 10, 4 * mib: 8 * mib} {
		h.ReleaseBytes()
		if err := h.ReserveBytes(t.Context(), n); err != nil || reserved != want {
			t.Errorf("%d bytes take %d (%v), want %d", n, reserved, err, want)
		}
	}
	h.ReleaseBytes()
	if err := errors.Join(h.ReserveTotal(t.Context(), mib), h.ReserveTotal(t.Context(), mib/2)); err != nil || reserved != 2*mib {
		t.Errorf("reaching a MiB twice takes %d (%v)", reserved, err)
	}
	var none *capacity.MemoryReservation
	if err := errors.Join(none.ReserveBytes(t.Context(), 1<<40), none.NewPart(1).ReserveBytes(t.Context(), 1<<40), new(capacity.MemoryReservation).ReserveBytes(t.Context(), 1<<40)); err != nil {
		t.Errorf("without a pool: %v", err)
	}
}

// TestReadAll checks that a body is read up to a bound, and that its memory is reserved before it is read.
func TestReadAll(t *testing.T) {
	t.Parallel()
	var reserved int64
	p := capacity.NewPool(64*mib, func(n int64) { reserved = n })
	for name, c := range map[string]struct {
		body, maxBytes int
		want           error
	}{
		"empty":        {0, 10, nil},
		"at the bound": {10, 10, nil},
		"above":        {11, 10, capacity.ErrTooManyBytes},
		"large":        {mib, mib, nil},
		"large, above": {mib + 1, mib, capacity.ErrTooManyBytes},
	} {
		r := p.NewReservation("acme", 1)
		got, err := r.ReadAll(t.Context(), strings.NewReader(strings.Repeat("x", c.body)), c.maxBytes)
		if !errors.Is(err, c.want) || err == nil && len(got) != c.body {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if c.body >= mib && reserved < mib {
			t.Errorf("%s: %d bytes are reserved", name, reserved)
		}
		r.ReleaseBytes()
	}
	r := p.NewReservation("acme", 100)
	if _, err := r.ReadAll(t.Context(), strings.NewReader(strings.Repeat("x", mib)), mib); !errors.Is(err, agentsvc.CodeTooLarge) {
		t.Errorf("more than the app's share is read: %v", err)
	}
	r.ReleaseBytes()
	if reserved != 0 {
		t.Errorf("%d bytes are reserved in the end", reserved)
	}
}

// TestTryReserve checks that bytes are reserved without waiting or not at all, and are returned in parts.
func TestTryReserve(t *testing.T) {
	t.Parallel()
	var reserved int64
	p := capacity.NewPool(64*mib, func(n int64) { reserved = n })
	r := p.NewReservation("acme", 1)
	if !r.TryReserveBytes(20*mib) || r.TryReserveBytes(13*mib) || reserved != 20*mib {
		t.Errorf("%d bytes are reserved, want the first 20 MiB only", reserved)
	}
	r.ReturnBytes(12 * mib)
	if reserved != 8*mib || !r.TryReserveBytes(13*mib) || reserved != 21*mib {
		t.Errorf("%d bytes are reserved after a part was returned", reserved)
	}
	r.ReturnBytes(21 * mib)
	if reserved != 0 {
		t.Errorf("%d bytes are reserved in the end", reserved)
	}
	var none *capacity.MemoryReservation
	if none.ReturnBytes(1); !none.TryReserveBytes(1 << 40) {
		t.Error("no pool is a bound")
	}
}
