package surface

import (
	"errors"
	"testing"
	"testing/synctest"

	"stoa/tenancy/db"
)

// TestHold: small bodies share one counter and wait for nobody until that is used up; others take room by their bytes and
// values, and everything is given back.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var large int64
		r := newRooms(func(n int64) { large = n }, defaultBodyRate)
		var small []*hold
		for range smallRoom / (smallBody + smallValues*valueSize) {
			h := &hold{}
			if err := h.takeValues(t.Context(), r, "acme", smallBody, smallValues); err != nil {
				t.Fatal(err)
			}
			small = append(small, h)
		}
		if n := r.small.Load(); n > smallRoom || len(r.values.apps) != 0 || large != 0 {
			t.Errorf("small bodies take %d of the counter, values of %d apps", n, len(r.values.apps))
		}
		more := &hold{}
		if err := more.takeValues(t.Context(), r, "acme", smallBody, smallValues); err != nil || more.small != 0 || len(r.values.apps) != 1 {
			t.Errorf("a small body beyond the counter: %v", err)
		}
		// Two bodies with as many values as may be: the second of one app waits in vain, that of another app does not.
		dense, second, other := &hold{}, &hold{}, &hold{}
		if err := dense.takeValues(t.Context(), r, "acme", 150<<10, maxValues); err != nil {
			t.Fatal(err)
		}
		if err := dense.takeValues(t.Context(), r, "acme", 150<<10, maxValues); err != nil {
			t.Errorf("the same body read again: %v", err)
		}
		if err := second.takeValues(t.Context(), r, "acme", 150<<10, maxValues); !errors.Is(err, errNoRoom) {
			t.Errorf("a second one of the app: %v", err)
		}
		second.release()
		if err := other.takeValues(t.Context(), r, "globex", 150<<10, maxValues); err != nil {
			t.Errorf("one of another app: %v", err)
		}
		if want := int64(2*(150<<10+maxValues*valueSize) + smallBody + smallValues*valueSize); large != want {
			t.Errorf("large bodies are said to take %d, want %d", large, want)
		}
		for _, h := range append(small, more, dense, other, dense) {
			h.release()
		}
		if r.small.Load() != 0 || large != 0 || len(r.values.apps)+len(r.bytes.apps) != 0 {
			t.Errorf("kept: %d small, %d large, %d apps", r.small.Load(), large, len(r.values.apps)+len(r.bytes.apps))
		}
	})
}

// TestUnproven: deliveries without proof leave every app's own room alone, and those to one app leave some for another's.
func TestUnproven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRooms(nil, defaultBodyRate)
		take := func(p *pool, app db.ID, n int64) error {
			_, err := p.take(t.Context(), app, n, n, nil)
			return err
		}
		for range appUnproven >> 20 {
			if err := take(r.unproven, "acme", 1<<20); err != nil {
				t.Fatal(err)
			}
		}
		if err := take(r.unproven, "acme", 1<<20); !errors.Is(err, errNoRoom) {
			t.Errorf("one more: %v", err)
		}
		if err := take(r.bytes, "acme", appRoom); err != nil {
			t.Errorf("the app's own room: %v", err)
		}
		if err := take(r.unproven, "globex", 1<<20); err != nil {
			t.Errorf("a delivery to another app: %v", err)
		}
	})
}
