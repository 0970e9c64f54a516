package surface

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"stoa/tenancy/db"
)

// TestRooms: an app's large bodies wait for those of the same app before them, and for those of others only where all
// of them together are too many.
func TestRooms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRooms()
		take := func(app db.ID, mib int64) (leave func(), waited time.Duration, err error) {
			began := time.Now()
			leave, err = r.take(t.Context(), app, mib<<20)
			return leave, time.Since(began), err
		}
		first, waited, err := take("acme", 60)
		if err != nil || waited != 0 {
			t.Fatalf("the first waited %v (%v)", waited, err)
		}
		if _, waited, err := take("acme", 5); !errors.Is(err, errNoRoom) || waited != roomWait {
			t.Errorf("too much of one app: %v after %v", err, waited)
		}
		globex, waited, err := take("globex", 64)
		if err != nil || waited != 0 {
			t.Errorf("another app waited %v (%v)", waited, err)
		}
		time.AfterFunc(3*time.Second, first)
		second, waited, err := take("acme", 60)
		if err != nil || waited != 3*time.Second {
			t.Errorf("the second waited %v (%v), want until the first left", waited, err)
		}
		var leave []func()
		for _, app := range []db.ID{"a", "b"} {
			l, waited, err := take(app, 64)
			if err != nil || waited != 0 {
				t.Errorf("%s waited %v (%v)", app, waited, err)
			}
			leave = append(leave, l)
		}
		if _, waited, err := take("c", 28); !errors.Is(err, errNoRoom) || waited != roomWait {
			t.Errorf("too much of all: %v after %v", err, waited)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.take(gone, "c", 28<<20); !errors.Is(err, errNoRoom) {
			t.Errorf("a client that is gone: %v", err)
		}
		for _, l := range append(leave, globex, second, second) { // leaving again is nothing
			l()
		}
		if len(r.apps) != 0 || !r.all.TryAcquire(allRoom) {
			t.Errorf("rooms of %d apps are kept", len(r.apps))
		}
	})
}
