package requestbody

import (
	"errors"
	"testing"
	"testing/synctest"

	"stoa/agentsvc/surface/decode"
	"stoa/tenancy/db"
)

// TestBodyReservation checks that small bodies share one counter without waiting until it is used up, that other bodies
// reserve their bytes and values in the pools, and that everything is released.
func TestBodyReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var large int64
		r := NewBudget(func(n int64) { large = n }, DefaultRate)
		var small []*bodyReservation
		for range smallBodyBudget / (smallBodyBytes + smallBodyValues*valueMemory) {
			h := &bodyReservation{}
			if err := h.reserveDecoded(t.Context(), r, "acme", smallBodyBytes, smallBodyValues); err != nil {
				t.Fatal(err)
			}
			small = append(small, h)
		}
		if n := r.smallBytes.Load(); n > smallBodyBudget || len(r.values.apps) != 0 || large != 0 {
			t.Errorf("small bodies take %d of the counter, values of %d apps", n, len(r.values.apps))
		}
		more := &bodyReservation{}
		if err := more.reserveDecoded(t.Context(), r, "acme", smallBodyBytes, smallBodyValues); err != nil || more.smallBytes != 0 || len(r.values.apps) != 1 {
			t.Errorf("a small body beyond the counter: %v", err)
		}
		// These bodies have the largest number of values: the second one of an app waits in vain, that of another app
		// does not.
		dense, second, other := &bodyReservation{}, &bodyReservation{}, &bodyReservation{}
		if err := dense.reserveDecoded(t.Context(), r, "acme", 150<<10, decode.MaxValues); err != nil {
			t.Fatal(err)
		}
		if err := dense.reserveDecoded(t.Context(), r, "acme", 150<<10, decode.MaxValues); err != nil {
			t.Errorf("the same body read again: %v", err)
		}
		if err := second.reserveDecoded(t.Context(), r, "acme", 150<<10, decode.MaxValues); !errors.Is(err, errBodyBudgetExhausted) {
			t.Errorf("a second one of the app: %v", err)
		}
		second.release()
		if err := other.reserveDecoded(t.Context(), r, "globex", 150<<10, decode.MaxValues); err != nil {
			t.Errorf("one of another app: %v", err)
		}
		if want := int64(2*(150<<10+decode.MaxValues*valueMemory) + smallBodyBytes + smallBodyValues*valueMemory); large != want {
			t.Errorf("large bodies are said to take %d, want %d", large, want)
		}
		for _, h := range append(small, more, dense, other, dense) {
			h.release()
		}
		if r.smallBytes.Load() != 0 || large != 0 || len(r.values.apps)+len(r.bytes.apps) != 0 {
			t.Errorf("kept: %d small, %d large, %d apps", r.smallBytes.Load(), large, len(r.values.apps)+len(r.bytes.apps))
		}
	})
}

// TestUnverified checks that deliveries whose signature is not verified use nothing of an app's own quota, and that
// deliveries to one app leave some of their pool to other apps.
func TestUnverified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewBudget(nil, DefaultRate)
		reserve := func(p *quotaPool, app db.ID, n int64) error {
			_, err := p.reserveBody(t.Context(), app, n, n, nil)
			return err
		}
		for range appUnverifiedBytes >> 20 {
			if err := reserve(r.unverified, "acme", 1<<20); err != nil {
				t.Fatal(err)
			}
		}
		if err := reserve(r.unverified, "acme", 1<<20); !errors.Is(err, errBodyBudgetExhausted) {
			t.Errorf("one more: %v", err)
		}
		if err := reserve(r.bytes, "acme", appBodyBytes); err != nil {
			t.Errorf("the app's own memory: %v", err)
		}
		if err := reserve(r.unverified, "globex", 1<<20); err != nil {
			t.Errorf("a delivery to another app: %v", err)
		}
	})
}
