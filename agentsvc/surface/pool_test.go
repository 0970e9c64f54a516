package surface

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"stoa/tenancy/db"
)

// sender is a body under way in a test.
type sender struct {
	*part
	cut bool
}

// startBody has a body take n bytes of those that it announced.
func startBody(t *testing.T, p *pool, app db.ID, announced, n int64) (*sender, error) {
	s := &sender{}
	part, err := p.take(t.Context(), app, announced, n, func() { s.cut = true })
	if err == nil {
		s.part = part
		s.arrived.Store(n)
	}
	return s, err
}

// leaveWhenCut has a sender's reader notice that it is cut.
func (s *sender) leaveWhenCut(p *pool) {
	p.mu.Lock()
	refused := s.refused
	p.mu.Unlock()
	if refused {
		s.leave()
	}
}

// TestPool: an app's large bodies wait for those of the same app before them, and for those of others only where all
// of them together are too many.
func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(appRoom, allRoom)
		take := func(app db.ID, mib int64) (body *part, waited time.Duration, err error) {
			began := time.Now()
			body, err = p.take(t.Context(), app, mib<<20, mib<<20, nil)
			return body, time.Since(began), err
		}
		first, waited, err := take("acme", 120)
		if err != nil || waited != 0 {
			t.Fatalf("the first waited %v (%v)", waited, err)
		}
		if _, waited, err := take("acme", 9); !errors.Is(err, errNoRoom) || waited != roomWait {
			t.Errorf("too much of one app: %v after %v", err, waited)
		}
		globex, waited, err := take("globex", 68)
		if err != nil || waited != 0 {
			t.Errorf("another app waited %v (%v)", waited, err)
		}
		if _, waited, err := take("initech", 69); !errors.Is(err, errNoRoom) || waited != roomWait {
			t.Errorf("more than is free: %v after %v", err, waited)
		}
		time.AfterFunc(3*time.Second, first.leave)
		second, waited, err := take("acme", 60)
		if err != nil || waited != 3*time.Second {
			t.Errorf("the second waited %v (%v), want until the first left", waited, err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.take(gone, "acme", 100<<20, 100<<20, nil); !errors.Is(err, errNoRoom) {
			t.Errorf("a client that is gone: %v", err)
		}
		for _, body := range []*part{globex, second, second} { // leaving again is nothing
			body.leave()
		}
		if len(p.apps) != 0 || p.taken != 0 || len(p.waiting) != 0 {
			t.Errorf("%d apps and %d bytes are kept, %d wait", len(p.apps), p.taken, len(p.waiting))
		}
	})
}

// TestPoolBesideColluders: however many apps take all the room they get and then send next to nothing, or go on at the least
// rate, an app that has none is given some at once or after patience.
func TestPoolBesideColluders(t *testing.T) {
	for _, apps := range []int{4, 16, 100} {
		for _, rate := range []int64{0, 2 * minRate} { // bytes a second that each of their bodies goes on with
			t.Run(fmt.Sprintf("%d at %d", apps, rate), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPool(appRoom, allRoom)
					var all []*sender
					for i := range apps {
						app := db.ID(fmt.Sprintf("colluder-%d", i))
						for n := int64(28 << 20); n >= 128<<10; n /= 2 { // what it can have
							for p.fits(&waiter{part: &part{app: app}, n: n, announce: n}) {
								s, err := startBody(t, p, app, n, n)
								if err != nil {
									t.Fatal(err)
								}
								s.arrived.Store(n / 2)
								all = append(all, s)
							}
						}
					}
					if apps >= 16 && p.size-p.taken > 1<<20 {
						t.Fatalf("%d bytes are free: the test does not fill the room", p.size-p.taken)
					}
					done := make(chan struct{})
					go func() { // the colluders' readers
						for tick := time.NewTicker(10 * time.Millisecond); ; {
							select {
							case <-done:
								tick.Stop()
								return
							case <-tick.C:
							}
							for _, s := range all {
								s.arrived.Add(rate / 100)
								s.leaveWhenCut(p)
							}
						}
					}()
					for range 3 {
						began := time.Now()
						quiet, err := startBody(t, p, "quiet", 1<<20, 1<<20)
						if took := time.Since(began); err != nil || took > patience+2*lookAgain {
							t.Errorf("a quiet app's body of 1 MiB: %v after %v", err, took)
						}
						if err == nil {
							quiet.leave()
						}
					}
					close(done)
					cut := 0
					for _, s := range all {
						if s.cut {
							cut++
						}
						s.leave()
					}
					if cut > 8 {
						t.Errorf("%d bodies were cut for one of 1 MiB", cut)
					}
					time.Sleep(time.Second) // the pool has no timer left
				})
			})
		}
	}
}

// TestSlowBodiesOfOneApp: bodies that do not arrive keep others of their own app out no longer than the grace.
func TestSlowBodiesOfOneApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(appUnproven, allUnproven)
		var slow []*sender
		for range 8 {
			s, err := startBody(t, p, "acme", 1<<20, 128<<10)
			if err != nil {
				t.Fatal(err)
			}
			slow = append(slow, s)
		}
		time.Sleep(minGrace + 2*time.Second + time.Millisecond) // as long as 128 KiB take at minRate
		go func() {
			for range 100 {
				time.Sleep(10 * time.Millisecond)
				for _, s := range slow {
					s.leaveWhenCut(p)
				}
			}
		}()
		began := time.Now()
		own, err := startBody(t, p, "acme", 1<<20, 128<<10)
		if took := time.Since(began); err != nil || took > 2*lookAgain {
			t.Errorf("another body of the app: %v after %v", err, took)
		}
		cut := 0
		for _, s := range slow {
			if s.cut {
				cut++
			}
		}
		if cut != 1 {
			t.Errorf("%d were cut, want as many as are needed", cut)
		}
		if err := own.finish(); err != nil {
			t.Errorf("the other: %v", err)
		}
		time.Sleep(time.Second)
	})
}

// TestPacedBodyGivesWay: a body that waits for its app's rate is not slow, and yet leaves its room at once when it is refused.
func TestPacedBodyGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRooms(nil, defaultBodyRate)
		r.rates.charge("acme", (bodyBurst+60)*defaultBodyRate-1)
		r.rates.debt.Store(0) // the body began before the debt
		a := newArrival(t.Context(), r, "acme", &hold{}, nil)
		end := make(chan error)
		go func() {
			_, err := takeBody(bytes.NewReader(make([]byte, 1<<20)), 1<<20, maxMessage, a)
			a.hold.release()
			end <- err
		}()
		synctest.Wait()
		time.Sleep(30 * time.Second)
		r.bytes.mu.Lock()
		for part := range r.bytes.apps["acme"].parts {
			if part.slow(time.Now()) {
				t.Error("the body is slow")
			}
			r.bytes.refuse(part)
		}
		r.bytes.mu.Unlock()
		began := time.Now()
		if err := <-end; !errors.Is(err, ErrSlow) || time.Since(began) > 0 || r.bytes.taken != 0 {
			t.Errorf("%v after %v, %d bytes are kept", err, time.Since(began), r.bytes.taken)
		}
	})
}

// TestWaitingIsNotSlow: a body that waited long for its first room has its time from then on.
func TestWaitingIsNotSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(appRoom, allRoom)
		first, err := startBody(t, p, "acme", appRoom, appRoom)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(8*time.Second, first.leave)
		second, err := startBody(t, p, "acme", 1<<20, 128<<10)
		if err != nil || second.slow(time.Now()) {
			t.Errorf("a body that waited: %v, slow %t", err, err == nil)
		}
	})
}

// TestGrowingBodies: bodies that all arrived in part and wait for each other come to an end, one after the other.
func TestGrowingBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(appRoom, allRoom)
		ends := make(chan error)
		const apps, step, size = 40, 1 << 20, 28 << 20
		for i := range apps {
			go func() {
				s, err := startBody(t, p, db.ID(fmt.Sprintf("app-%d", i)), size, step)
				for has := int64(step); err == nil && has < size; has += step {
					time.Sleep(time.Millisecond)
					if err = s.grow(t.Context(), step); err == nil {
						s.arrived.Add(step)
					}
					if s.cut {
						err = ErrSlow
					}
				}
				if err == nil {
					err = s.finish()
				}
				if s.part != nil {
					s.leave()
				}
				ends <- err
			}()
		}
		whole := 0
		for range apps {
			if err := <-ends; err == nil {
				whole++
			} else if !errors.Is(err, ErrSlow) && !errors.Is(err, errNoRoom) {
				t.Error(err)
			}
		}
		if whole < allRoom/size/2 {
			t.Errorf("%d of %d bodies were taken in", whole, apps)
		}
		if p.taken != 0 || len(p.apps) != 0 || len(p.waiting) != 0 {
			t.Errorf("%d bytes of %d apps are kept, %d wait", p.taken, len(p.apps), len(p.waiting))
		}
		time.Sleep(time.Second)
	})
}

// TestBodyRates: an app's large bodies arrive as fast as they come up to a burst, then at the rate; others' are not held back.
func TestBodyRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 1 << 20
		r := newBodyRates(rate)
		began := time.Now()
		pay := func(app db.ID, cost int64) time.Duration {
			t.Helper()
			r.charge(app, cost)
			if err := r.wait(t.Context(), app); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		if took := pay("acme", bodyBurst*rate); took != 0 {
			t.Errorf("the burst took %v", took)
		}
		if took := pay("acme", 3*rate); took != 3*time.Second {
			t.Errorf("three seconds' worth took %v", took)
		}
		if took := pay("globex", rate); took != 3*time.Second {
			t.Errorf("another app waited until %v", took)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		r.charge("acme", rate)
		if err := r.wait(gone, "acme"); !errors.Is(err, errNoRoom) {
			t.Errorf("a client that is gone: %v", err)
		}
		time.Sleep(time.Hour)
		for i := range 200 {
			pay(db.ID(fmt.Sprint(i)), 1)
			time.Sleep(time.Minute)
		}
		if len(r.apps) > 64 {
			t.Errorf("%d apps are remembered that have no debt", len(r.apps))
		}
	})
}
