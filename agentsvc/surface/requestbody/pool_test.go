package requestbody

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

// testBody is a body that is being received in a test.
type testBody struct {
	*poolReservation
	// cutOff is set by the pool, under its lock, when it refuses the body.
	cutOff bool
}

// startBody starts a body that announces a size and reserves n for its first step.
func startBody(t *testing.T, p *quotaPool, app db.ID, announced, n int64) (*testBody, error) {
	s := &testBody{}
	part, err := p.reserveBody(t.Context(), app, announced, n, func() { s.cutOff = true })
	if err == nil {
		s.poolReservation = part
		s.received.Store(n)
	}
	return s, err
}

// releaseWhenCutOff does what the reader of a body does when the body was refused.
func (b *testBody) releaseWhenCutOff(p *quotaPool) {
	p.mu.Lock()
	refused := b.refused
	p.mu.Unlock()
	if refused {
		b.release()
	}
}

// TestPool checks that an app's large bodies wait for its own ones before them, and for those of other apps only if the
// pool is used up.
func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newQuotaPool(appBodyBytes, totalBodyBytes)
		reserve := func(app db.ID, mib int64) (body *poolReservation, waited time.Duration, err error) {
			began := time.Now()
			body, err = p.reserveBody(t.Context(), app, mib<<20, mib<<20, nil)
			return body, time.Since(began), err
		}
		first, waited, err := reserve("acme", 120)
		if err != nil || waited != 0 {
			t.Fatalf("the first waited %v (%v)", waited, err)
		}
		if _, waited, err := reserve("acme", 9); !errors.Is(err, errBodyBudgetExhausted) || waited != maxWait {
			t.Errorf("too much of one app: %v after %v", err, waited)
		}
		globex, waited, err := reserve("globex", 68)
		if err != nil || waited != 0 {
			t.Errorf("another app waited %v (%v)", waited, err)
		}
		if _, waited, err := reserve("initech", 69); !errors.Is(err, errBodyBudgetExhausted) || waited != maxWait {
			t.Errorf("more than is free: %v after %v", err, waited)
		}
		time.AfterFunc(3*time.Second, first.release)
		second, waited, err := reserve("acme", 60)
		if err != nil || waited != 3*time.Second {
			t.Errorf("the second waited %v (%v), want until the first left", waited, err)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.reserveBody(cancelled, "acme", 100<<20, 100<<20, nil); !errors.Is(err, errBodyBudgetExhausted) {
			t.Errorf("a client that is gone: %v", err)
		}
		for _, body := range []*poolReservation{globex, second, second} { // releasing twice does nothing
			body.release()
		}
		if len(p.apps) != 0 || p.used != 0 || len(p.waiting) != 0 {
			t.Errorf("%d apps and %d bytes are kept, %d wait", len(p.apps), p.used, len(p.waiting))
		}
	})
}

// TestPoolWithColluders checks that however many apps reserve all they can and then send almost nothing, or send at
// little more than the lowest rate, an app that uses nothing gets memory after fairShareWait at the latest.
func TestPoolWithColluders(t *testing.T) {
	for _, apps := range []int{4, 16, 100} {
		for _, rate := range []int64{0, 2 * minBodyRate} { // bytes a second at which each of their bodies continues
			t.Run(fmt.Sprintf("%d at %d", apps, rate), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newQuotaPool(appBodyBytes, totalBodyBytes)
					var all []*testBody
					for i := range apps {
						app := db.ID(fmt.Sprintf("colluder-%d", i))
						for n := int64(28 << 20); n >= 128<<10; n /= 2 { // all that the app can get
							for p.canGrant(&waiter{reservation: &poolReservation{app: app}, amount: n, announced: n}) {
								s, err := startBody(t, p, app, n, n)
								if err != nil {
									t.Fatal(err)
								}
								s.received.Store(n / 2)
								all = append(all, s)
							}
						}
					}
					if apps >= 16 && p.size-p.used > 1<<20 {
						t.Fatalf("%d bytes are free: the test does not fill the pool", p.size-p.used)
					}
					done := make(chan struct{})
					go func() { // the readers of the other apps' bodies
						for tick := time.NewTicker(10 * time.Millisecond); ; {
							select {
							case <-done:
								tick.Stop()
								return
							case <-tick.C:
							}
							for _, s := range all {
								s.received.Add(rate / 100)
								s.releaseWhenCutOff(p)
							}
						}
					}()
					for range 3 {
						began := time.Now()
						quiet, err := startBody(t, p, "quiet", 1<<20, 1<<20)
						if took := time.Since(began); err != nil || took > fairShareWait+2*recheckInterval {
							t.Errorf("a quiet app's body of 1 MiB: %v after %v", err, took)
						}
						if err == nil {
							quiet.release()
						}
					}
					close(done)
					cutOff := 0
					for _, s := range all {
						if s.cutOff {
							cutOff++
						}
						s.release()
					}
					if cutOff > 8 {
						t.Errorf("%d bodies were cut for one of 1 MiB", cutOff)
					}
					time.Sleep(time.Second) // the pool must have no timer left
				})
			})
		}
	}
}

// TestSlowBodiesOfOneApp checks that bodies which do not arrive keep out others of their app for no longer than the
// grace.
func TestSlowBodiesOfOneApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newQuotaPool(appUnverifiedBytes, totalUnverifiedBytes)
		var slow []*testBody
		for range 8 {
			s, err := startBody(t, p, "acme", 1<<20, 128<<10)
			if err != nil {
				t.Fatal(err)
			}
			slow = append(slow, s)
		}
		time.Sleep(slowBodyGrace + 2*time.Second + time.Millisecond) // what 128 KiB take at minBodyRate
		go func() {
			for range 100 {
				time.Sleep(10 * time.Millisecond)
				for _, s := range slow {
					s.releaseWhenCutOff(p)
				}
			}
		}()
		began := time.Now()
		own, err := startBody(t, p, "acme", 1<<20, 128<<10)
		if took := time.Since(began); err != nil || took > 2*recheckInterval {
			t.Errorf("another body of the app: %v after %v", err, took)
		}
		cutOff := 0
		for _, s := range slow {
			if s.cutOff {
				cutOff++
			}
		}
		if cutOff != 1 {
			t.Errorf("%d were cut, want as many as are needed", cutOff)
		}
		if err := own.markReceived(); err != nil {
			t.Errorf("the other: %v", err)
		}
		time.Sleep(time.Second)
	})
}

// TestPacedBodyGivesWay checks that a body which waits for its app's rate is not slow, and that it releases its memory
// at once when it is refused.
func TestPacedBodyGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewBudget(nil, DefaultRate)
		r.rates.chargeApp("acme", (bodyBurst+60)*DefaultRate-1)
		r.rates.debtUntil.Store(0) // as if the body had begun before the debt
		a := newMeter(t.Context(), r, "acme", &bodyReservation{}, nil)
		end := make(chan error)
		go func() {
			_, err := readMetered(bytes.NewReader(make([]byte, 1<<20)), 1<<20, MaxMessage, a)
			a.reservation.release()
			end <- err
		}()
		synctest.Wait()
		time.Sleep(30 * time.Second)
		r.bytes.mu.Lock()
		for part := range r.bytes.apps["acme"].reservations {
			if part.isSlow(time.Now()) {
				t.Error("the body is slow")
			}
			r.bytes.refuseBody(part)
		}
		r.bytes.mu.Unlock()
		began := time.Now()
		if err := <-end; !errors.Is(err, ErrTooSlow) || time.Since(began) > 0 || r.bytes.used != 0 {
			t.Errorf("%v after %v, %d bytes are kept", err, time.Since(began), r.bytes.used)
		}
	})
}

// TestWaitingIsNotSlow checks that the time that a body waits for its first step does not make it slow.
func TestWaitingIsNotSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newQuotaPool(appBodyBytes, totalBodyBytes)
		first, err := startBody(t, p, "acme", appBodyBytes, appBodyBytes)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(8*time.Second, first.release)
		second, err := startBody(t, p, "acme", 1<<20, 128<<10)
		if err != nil || second.isSlow(time.Now()) {
			t.Errorf("a body that waited: %v, slow %t", err, err == nil)
		}
	})
}

// TestGrowingBodies checks that bodies which have all arrived in part and wait for each other all end, one after the
// other.
func TestGrowingBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newQuotaPool(appBodyBytes, totalBodyBytes)
		ends := make(chan error)
		const apps, step, size = 40, 1 << 20, 28 << 20
		for i := range apps {
			go func() {
				s, err := startBody(t, p, db.ID(fmt.Sprintf("app-%d", i)), size, step)
				for has := int64(step); err == nil && has < size; has += step {
					time.Sleep(time.Millisecond)
					if err = s.growBy(t.Context(), step); err == nil {
						s.received.Add(step)
					}
					if s.cutOff {
						err = ErrTooSlow
					}
				}
				if err == nil {
					err = s.markReceived()
				}
				if s.poolReservation != nil {
					s.release()
				}
				ends <- err
			}()
		}
		complete := 0
		for range apps {
			if err := <-ends; err == nil {
				complete++
			} else if !errors.Is(err, ErrTooSlow) && !errors.Is(err, errBodyBudgetExhausted) {
				t.Error(err)
			}
		}
		if complete < totalBodyBytes/size/2 {
			t.Errorf("%d of %d bodies were taken in", complete, apps)
		}
		if p.used != 0 || len(p.apps) != 0 || len(p.waiting) != 0 {
			t.Errorf("%d bytes of %d apps are kept, %d wait", p.used, len(p.apps), len(p.waiting))
		}
		time.Sleep(time.Second)
	})
}

// TestBodyRates checks that an app's large bodies are read at once up to the burst and then at the rate, that other
// apps are not delayed, and that apps without a debt are forgotten.
func TestBodyRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 1 << 20
		r := newRateLimits(rate)
		began := time.Now()
		pay := func(app db.ID, cost int64) time.Duration {
			t.Helper()
			r.chargeApp(app, cost)
			if err := r.waitForDebt(t.Context(), app); err != nil {
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
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		r.chargeApp("acme", rate)
		if err := r.waitForDebt(cancelled, "acme"); !errors.Is(err, errBodyBudgetExhausted) {
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

// TestAnnounceMoreThanAppMay checks that a body which announces more than the bodies of its app may is received like one
// that announces as much as they may: alone, and while others of its app wait.
func TestAnnounceMoreThanAppMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newQuotaPool(8, 16)
		first, err := startBody(t, p, "acme", 28, 4)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		time.AfterFunc(3*time.Second, first.release)
		second, err := startBody(t, p, "acme", 28, 4)
		if waited := time.Since(began); err != nil || waited > 3*time.Second {
			t.Fatalf("the second: %v after %v", err, waited)
		}
		second.release()
		if len(p.apps) != 0 || p.used != 0 {
			t.Errorf("%d units of %d apps are kept", p.used, len(p.apps))
		}
		time.Sleep(time.Second)
	})
}
