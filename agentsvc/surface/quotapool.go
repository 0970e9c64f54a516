package surface

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"stoa/tenancy/db"
)

// quotaPool is an amount of something (bytes, JSON values, messages) that the bodies of all apps share. A body takes of it what it
// needs by now, in steps as it arrives, and returns all of it at once when its request is done.
//
// Two rules say what a body may take:
//
//   - What the bodies of one app have announced is at most most. A body announces once, before its first step, how much it may
//     become. So an app's bodies never wait for each other in the middle. A false announcement harms only its own app.
//   - An app may have as much as it leaves free ([queue] has the same rule for workers): alone half of the pool, and N apps that
//     take all they may leave a part of 1/(N+1). An app that has none finds some, however many others take theirs.
//
// What does not fit waits, at most bodyBudgetWait. The second rule alone would not do: an app that took its half early keeps it when
// others come, and each of them gets a half of less. Therefore, as long as somebody waits, bodies that still arrive are refused:
//
//   - every one that arrives slower than minBodyRate, and
//   - after patience, one whose app has more than the waiting app would have, the slowest first, beginning with the app that
//     has most.
//
// No more of them than what is missing needs. Nobody waits for ever: bodies of several apps that all arrived in part and wait for each
// other either have unequal parts, of which the largest gives way after patience, or equal ones, of which the first gives up after
// bodyBudgetWait and leaves what it has to the rest.
type quotaPool struct {
	size      int64         // of all
	maxPerApp int64         // that one app's bodies may announce
	grace     time.Duration // in which a body need not arrive at minBodyRate

	mu           sync.Mutex
	used         int64
	apps         map[db.ID]*appShare
	waiting      []*waiter // the first came first
	recheckTimer *time.Timer
	checkedAt    time.Time // when bodies were refused for somebody's sake last
}

const (
	minBodyRate     = 64 << 10 // bytes a second that a body arrives with, on average, while others wait
	slowBodyGrace   = 2 * time.Second
	fairShareWait   = time.Second            // of who waits with bodies that are not slow
	recheckInterval = 100 * time.Millisecond // after which it is seen anew what those who wait need
)

// appShare is what one app has of a pool, as long as it has bodies in it. The pool's mu guards it.
type appShare struct {
	used         int64
	announced    int64
	reservations map[*poolReservation]struct{}
}

// poolReservation is what one body has of a pool.
type poolReservation struct {
	pool *quotaPool
	app  db.ID

	received    atomic.Int64 // bytes, written by the body's reader
	pausedNanos atomic.Int64 // nanoseconds in which it was not the sender who was slow, written by the body's reader

	// Guarded by the pool's mu.
	used      int64
	announced int64
	grantedAt time.Time // when it had its first room
	cutOff    func()    // ends the reading of a body that still arrives, nil = it has arrived
	refused   bool      // cut was called
	waiter    *waiter   // nil = it waits for nothing
}

// waiter is a step that does not fit yet.
type waiter struct {
	reservation *poolReservation
	amount      int64
	announced   int64 // of it, 0 = it has announced itself before
	since       time.Time
	result      chan error // takes one value
}

var (
	errBodyBudgetExhausted = &responseError{
		code: ResourceExhausted, status: http.StatusTooManyRequests, text: "too many large messages are being taken in, try again shortly", retryAfter: time.Second,
	}
	// ErrTooSlow says that a message was given up for others' sake.
	ErrTooSlow = &responseError{
		code: ResourceExhausted, status: http.StatusTooManyRequests, retryAfter: time.Second,
		text: "the message arrived too slowly, or its app had more room for messages than others, while others waited; try again shortly",
	}
)

func newQuotaPool(maximum, size int64) *quotaPool {
	return &quotaPool{size: size, maxPerApp: maximum, grace: slowBodyGrace, apps: map[db.ID]*appShare{}}
}

// reserveBody waits until a body of an app's may have n and become announced. cut ends its reading at once; it is called under the
// pool's lock, at most once and not after [part.markReceived]. A cut of nil says that the body has arrived.
func (p *quotaPool) reserveBody(ctx context.Context, app db.ID, announced, n int64, cutOff func()) (*poolReservation, error) {
	t := &poolReservation{pool: p, app: app, cutOff: cutOff}
	if err := p.reserveOrWait(ctx, &waiter{reservation: t, amount: n, announced: announced}); err != nil {
		return nil, err
	}
	return t, nil
}

// growBy waits until the body may have n more.
func (t *poolReservation) growBy(ctx context.Context, n int64) error {
	began := time.Now()
	err := t.pool.reserveOrWait(ctx, &waiter{reservation: t, amount: n})
	t.pausedNanos.Add(int64(time.Since(began)))
	return err
}

// markReceived says that the body has arrived: it is not refused any more. It returns an error if it was before.
func (t *poolReservation) markReceived() error {
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.refused {
		return ErrTooSlow
	}
	t.cutOff = nil
	if less := t.announced - t.used; less > 0 {
		t.announced -= less
		p.apps[t.app].announced -= less
		p.grantWaiting()
	}
	return nil
}

// release returns what the body has.
func (t *poolReservation) release() {
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.apps[t.app]
	if s == nil {
		return
	}
	if _, here := s.reservations[t]; !here {
		return
	}
	p.used -= t.used
	s.used -= t.used
	s.announced -= t.announced
	t.used, t.announced, t.cutOff = 0, 0, nil
	delete(s.reservations, t)
	if len(s.reservations) == 0 {
		delete(p.apps, t.app)
	}
	p.grantWaiting()
}

// reserveOrWait takes a step, or waits until it may be taken.
func (p *quotaPool) reserveOrWait(ctx context.Context, w *waiter) error {
	p.mu.Lock()
	switch {
	case w.reservation.refused:
		p.mu.Unlock()
		return ErrTooSlow
	case p.canGrant(w) && (w.announced == 0 || !p.hasWaiting(w.reservation.app)):
		p.applyGrant(w)
		p.mu.Unlock()
		return nil
	}
	w.since, w.result = time.Now(), make(chan error, 1)
	w.reservation.waiter = w
	p.waiting = append(p.waiting, w)
	p.refuseForWaiting()
	p.mu.Unlock()

	timer := time.NewTimer(bodyBudgetWait)
	defer timer.Stop()
	select {
	case err := <-w.result:
		return err
	case <-ctx.Done():
	case <-timer.C:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case err := <-w.result: // just in time
		return err
	default:
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(x *waiter) bool { return x == w })
	w.reservation.waiter = nil
	p.grantWaiting() // those who came later may fit
	return errBodyBudgetExhausted
}

// hasWaiting reports whether a body of the app's waits to announce itself.
func (p *quotaPool) hasWaiting(app db.ID) bool {
	return slices.ContainsFunc(p.waiting, func(w *waiter) bool { return w.announced > 0 && w.reservation.app == app })
}

// computeShortage returns how much of the app's announcements and of the pool has to become free before w fits.
func (p *quotaPool) computeShortage(w *waiter) (announced, missing int64) {
	s := p.apps[w.reservation.app]
	if s == nil {
		s = &appShare{}
	}
	if w.announced > 0 {
		announced = max(0, s.announced+w.announced-p.maxPerApp)
	}
	return announced, max(0, s.used+w.amount-(p.size-p.used))
}

func (p *quotaPool) canGrant(w *waiter) bool {
	announced, missing := p.computeShortage(w)
	return announced == 0 && missing == 0
}

func (p *quotaPool) applyGrant(w *waiter) {
	t := w.reservation
	s := p.apps[t.app]
	if s == nil {
		s = &appShare{reservations: map[*poolReservation]struct{}{}}
		p.apps[t.app] = s
	}
	if w.announced > 0 {
		s.reservations[t], t.grantedAt = struct{}{}, time.Now()
	}
	s.used, s.announced = s.used+w.amount, s.announced+w.announced
	t.used, t.announced = t.used+w.amount, t.announced+w.announced
	p.used += w.amount
}

// grantWaiting gives those who wait what fits by now. Of those of one app that wait to announce themselves none overtakes another.
func (p *quotaPool) grantWaiting() {
	if len(p.waiting) == 0 {
		return
	}
	var skipped map[db.ID]bool
	p.waiting = slices.DeleteFunc(p.waiting, func(w *waiter) bool {
		app := w.reservation.app
		if !p.canGrant(w) || w.announced > 0 && skipped[app] {
			if w.announced > 0 {
				if skipped == nil {
					skipped = map[db.ID]bool{}
				}
				skipped[app] = true
			}
			return false
		}
		p.applyGrant(w)
		w.reservation.waiter = nil
		w.result <- nil
		return true
	})
}

// refuseForWaiting refuses bodies for the sake of those who wait, and sees to it that this is done again as long as somebody does.
func (p *quotaPool) refuseForWaiting() {
	now := time.Now()
	if len(p.waiting) == 0 {
		return
	}
	if p.recheckTimer == nil {
		p.recheckTimer = time.AfterFunc(recheckInterval, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.recheckTimer = nil
			p.refuseForWaiting()
		})
	}
	if now.Sub(p.checkedAt) < recheckInterval {
		return // however many wait, bodies are looked through a few times a second
	}
	p.checkedAt = now
	p.refuseWithinApps(now)
	var least *waiter // who would have least is served first
	for _, w := range p.waiting {
		if announced, missing := p.computeShortage(w); announced == 0 && missing > 0 && (least == nil || p.projectUsage(w) < p.projectUsage(least)) {
			least = w
		}
	}
	if least != nil {
		p.refuseAcrossApps(now, least)
	}
	p.grantWaiting()
}

// projectUsage returns how much the app of w has with it.
func (p *quotaPool) projectUsage(w *waiter) int64 {
	if s := p.apps[w.reservation.app]; s != nil {
		return s.used + w.amount
	}
	return w.amount
}

// refuseWithinApps refuses slow bodies of apps whose bodies wait to announce themselves.
func (p *quotaPool) refuseWithinApps(now time.Time) {
	var seen map[db.ID]bool
	for _, w := range slices.Clone(p.waiting) {
		missing, _ := p.computeShortage(w)
		if missing == 0 || seen[w.reservation.app] {
			continue
		}
		if seen == nil {
			seen = map[db.ID]bool{}
		}
		seen[w.reservation.app] = true
		var slow []*poolReservation
		for t := range p.apps[w.reservation.app].reservations {
			switch {
			case t.refused: // it has yet to leave
				missing -= t.announced
			case t.isSlow(now):
				slow = append(slow, t)
			}
		}
		slices.SortFunc(slow, func(a, b *poolReservation) int { return cmp.Compare(a.averageRate(now), b.averageRate(now)) })
		for _, t := range slow {
			if missing <= 0 {
				break
			}
			missing -= t.announced
			p.refuseBody(t)
		}
	}
}

// refuseAcrossApps refuses bodies of any app so that w fits.
func (p *quotaPool) refuseAcrossApps(now time.Time, w *waiter) {
	_, missing := p.computeShortage(w)
	fairUsage := p.projectUsage(w)
	var candidates []*poolReservation
	for app, s := range p.apps {
		for t := range s.reservations {
			switch {
			case t.refused: // it has yet to leave
				missing -= t.used
			case t.isSlow(now), app != w.reservation.app && s.used > fairUsage && t.cutOff != nil && now.Sub(w.since) >= fairShareWait:
				candidates = append(candidates, t)
			}
		}
	}
	slices.SortFunc(candidates, func(a, b *poolReservation) int {
		return cmp.Or(cmp.Compare(p.apps[b.app].used, p.apps[a.app].used), cmp.Compare(a.averageRate(now), b.averageRate(now)))
	})
	for _, t := range candidates {
		if missing <= 0 {
			break
		}
		missing -= t.used
		p.refuseBody(t)
	}
}

// averageRate returns how many bytes a second the body has arrived with.
func (t *poolReservation) averageRate(now time.Time) float64 {
	took := now.Sub(t.grantedAt) - time.Duration(t.pausedNanos.Load())
	return float64(t.received.Load()) / max(took, time.Millisecond).Seconds()
}

// isSlow reports whether the body arrives, and has done so more slowly than it may while others wait.
func (t *poolReservation) isSlow(now time.Time) bool {
	if t.cutOff == nil || t.waiter != nil {
		return false
	}
	took := now.Sub(t.grantedAt) - time.Duration(t.pausedNanos.Load())
	return took > t.pool.grace && float64(t.received.Load()) < (took-t.pool.grace).Seconds()*minBodyRate
}

// refuseBody ends the arriving of a body. What it has becomes free when its reader has noticed.
func (p *quotaPool) refuseBody(t *poolReservation) {
	t.refused = true
	if w := t.waiter; w != nil {
		t.waiter = nil
		p.waiting = slices.DeleteFunc(p.waiting, func(x *waiter) bool { return x == w })
		w.result <- ErrTooSlow
		return
	}
	t.cutOff()
}
