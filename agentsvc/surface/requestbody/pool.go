package requestbody

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/apierror"
	"stoa/tenancy/db"
)

// quotaPool is an amount of something (bytes, JSON values, messages) that the request bodies of all apps share. A body
// takes what it needs in steps as it arrives, and returns all of it at once when its request is done.
//
// Two rules decide whether a step fits:
//
//   - The bodies of one app may announce maxPerApp in total. A body announces once, before its first step, how large it
//     may become. So bodies of one app never wait for each other when they have arrived in part. A false announcement
//     harms only its own app.
//   - What an app uses, the step included, must not exceed what is free before the step. So one app alone can use half
//     of the pool, and N apps that take all they can leave 1/(N+1) of it free. An app that uses nothing always finds
//     some, however many others use theirs. (Workers are shared by the same rule, see package queue.)
//
// A step that does not fit waits, for at most maxWait. The rules alone are not fair: an app that took half of
// the pool early keeps it when others come, and each of them gets half of less. So while a step waits, bodies that have
// not arrived in full are refused:
//
//   - each one that arrives more slowly than minBodyRate, and
//   - once the step has waited for fairShareWait, bodies of apps that use more than the waiting app would use: first of
//     the app that uses most, and of its bodies the slowest first.
//
// No more bodies are refused than the waiting step needs. Nothing waits for ever: if bodies of several apps have all
// arrived in part and wait for each other, then either their apps use different amounts, and the largest is refused
// after fairShareWait, or the same amount, and the first one gives up after maxWait and leaves its part to the
// others.
type quotaPool struct {
	// size is the amount that all apps share.
	size int64
	// maxPerApp is what the bodies of one app may announce in total.
	maxPerApp int64
	// grace is how long a body may arrive more slowly than minBodyRate.
	grace time.Duration

	// mu guards the fields below, the appShares and the marked fields of the poolReservations.
	mu sync.Mutex
	// used is the sum of used over all apps.
	used int64
	// apps has an entry for each app with at least one reservation.
	apps map[db.ID]*appShare
	// waiting are the steps that wait, in the order in which they came.
	waiting []*waiter
	// recheckTimer runs refuseForWaiting again; nil = it is not needed.
	recheckTimer *time.Timer
	// checkedAt is when refuseForWaiting looked through the bodies last.
	checkedAt time.Time
}

const (
	// minBodyRate is the average rate, in bytes a second, below which a body is slow while others wait.
	minBodyRate = 64 << 10
	// slowBodyGrace is the grace of pools of bytes and values, see quotaPool.grace.
	slowBodyGrace = 2 * time.Second
	// fairShareWait is how long a step waits before bodies that are not slow are refused for it.
	fairShareWait = time.Second
	// recheckInterval is how often the bodies are looked through while steps wait.
	recheckInterval = 100 * time.Millisecond
)

// appShare is what the reservations of one app add up to. It is guarded by the pool's mu.
type appShare struct {
	used         int64
	announced    int64
	reservations map[*poolReservation]struct{}
}

// poolReservation is what one body has reserved in a pool.
type poolReservation struct {
	pool *quotaPool
	app  db.ID

	// received is how many bytes have arrived, written by the goroutine that reads the body.
	received atomic.Int64
	// pausedNanos is how many nanoseconds the server, not the sender, delayed the body, written by the same goroutine.
	pausedNanos atomic.Int64

	// Guarded by the pool's mu.
	used      int64
	announced int64
	// grantedAt is when the first step was granted: averageRate counts from then.
	grantedAt time.Time
	// cutOff aborts the reading of the body; nil = it has arrived and is not refused any more.
	cutOff func()
	// refused says that the body was refused; its reader releases the reservation when it notices.
	refused bool
	// waiter is the step that the body waits for, nil = none.
	waiter *waiter
}

// waiter is one step of a body, and what is needed while it waits.
type waiter struct {
	reservation *poolReservation
	// amount is what the step takes of the pool.
	amount int64
	// announced is what the body announces with its first step, 0 = it is a later step.
	announced int64
	// since is when the step began to wait.
	since time.Time
	// result gets one value: nil when the step is granted, or ErrTooSlow. It has a buffer of one, so that the sender
	// never blocks under mu.
	result chan error
}

var (
	// errBodyBudgetExhausted says that a step waited in vain.
	errBodyBudgetExhausted = &agentsvc.Error{
		Code: apierror.CodeBodiesLimited, Message: "too many large messages are being taken in, try again shortly", RetryAfter: time.Second,
	}
	// ErrTooSlow says that a message was refused because others waited.
	ErrTooSlow = &agentsvc.Error{
		Code: apierror.CodeBodiesLimited, RetryAfter: time.Second,
		Message: "the message arrived too slowly, or its app had more room for messages than others, while others waited; try again shortly",
	}
)

// newQuotaPool returns a pool of size, of which the bodies of one app may announce maximum.
func newQuotaPool(maximum, size int64) *quotaPool {
	return &quotaPool{size: size, maxPerApp: maximum, grace: slowBodyGrace, apps: map[db.ID]*appShare{}}
}

// reserveBody announces a body of an app and waits for its first step of n. A body that may become larger than what its
// app may announce announces just that: so the first body of an app always fits by its announcement. cutOff aborts the
// reading of the body at once. It is called under p.mu, at most once, and not after markReceived, so it must not block
// or call the pool. cutOff = nil says that the body has arrived. It returns errBodyBudgetExhausted if the step did not
// fit in time or ctx ended.
func (p *quotaPool) reserveBody(ctx context.Context, app db.ID, announced, n int64, cutOff func()) (*poolReservation, error) {
	t := &poolReservation{pool: p, app: app, cutOff: cutOff}
	if err := p.reserveOrWait(ctx, &waiter{reservation: t, amount: n, announced: min(announced, p.maxPerApp)}); err != nil {
		return nil, err
	}
	return t, nil
}

// growBy waits for a step of n more. It returns errBodyBudgetExhausted, or ErrTooSlow if the body was refused.
func (r *poolReservation) growBy(ctx context.Context, n int64) error {
	began := time.Now()
	err := r.pool.reserveOrWait(ctx, &waiter{reservation: r, amount: n})
	r.pausedNanos.Add(int64(time.Since(began)))
	return err
}

// markReceived says that the body has arrived: from now on it is not refused. What it announced and did not use becomes
// free for other bodies of its app. It returns ErrTooSlow if the body was refused before.
func (r *poolReservation) markReceived() error {
	p := r.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.refused {
		return ErrTooSlow
	}
	r.cutOff = nil
	if less := r.announced - r.used; less > 0 {
		r.announced -= less
		p.apps[r.app].announced -= less
		p.grantWaiting()
	}
	return nil
}

// release returns everything to the pool and grants waiting steps. It may be called more than once.
func (r *poolReservation) release() {
	p := r.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.apps[r.app]
	if s == nil {
		return
	}
	if _, here := s.reservations[r]; !here {
		return
	}
	p.used -= r.used
	s.used -= r.used
	s.announced -= r.announced
	r.used, r.announced, r.cutOff = 0, 0, nil
	delete(s.reservations, r)
	if len(s.reservations) == 0 {
		delete(p.apps, r.app)
	}
	p.grantWaiting()
}

// reserveOrWait grants w, or waits until it is granted, refused or maxWait has passed.
func (p *quotaPool) reserveOrWait(ctx context.Context, w *waiter) error {
	p.mu.Lock()
	switch {
	case w.reservation.refused:
		p.mu.Unlock()
		return ErrTooSlow
	// A first step must not overtake waiting ones of its app. Later steps may: their bodies already use part of the
	// pool.
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

	timer := time.NewTimer(maxWait)
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
	case err := <-w.result: // it was decided before mu was taken
		return err
	default:
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(x *waiter) bool { return x == w })
	w.reservation.waiter = nil
	p.grantWaiting() // later steps may fit now
	return errBodyBudgetExhausted
}

// hasWaiting reports whether a first step of the app waits. The caller holds p.mu.
func (p *quotaPool) hasWaiting(app db.ID) bool {
	return slices.ContainsFunc(p.waiting, func(w *waiter) bool { return w.announced > 0 && w.reservation.app == app })
}

// computeShortage returns by how much w does not fit: announced is what must become free of the app's announcements,
// missing what must become free of the pool. Both are 0 if w fits. The caller holds p.mu.
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

// canGrant reports whether w fits. The caller holds p.mu.
func (p *quotaPool) canGrant(w *waiter) bool {
	announced, missing := p.computeShortage(w)
	return announced == 0 && missing == 0
}

// applyGrant takes what w asks for. The caller holds p.mu and has checked canGrant.
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

// grantWaiting grants the waiting steps that fit, in their order. First steps of one app do not overtake each other;
// steps of different apps may. The caller holds p.mu.
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

// refuseForWaiting refuses bodies for the waiting steps, at most once in recheckInterval, and starts recheckTimer so
// that it runs again while steps wait: a body may have become slow, or a step have waited for fairShareWait. The caller
// holds p.mu.
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
		return // looking through all bodies for each new waiter would be quadratic
	}
	p.checkedAt = now
	p.refuseWithinApps(now)
	var least *waiter // the step whose app would use least is served first
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

// projectUsage returns what the app of w would use if w were granted. The caller holds p.mu.
func (p *quotaPool) projectUsage(w *waiter) int64 {
	if s := p.apps[w.reservation.app]; s != nil {
		return s.used + w.amount
	}
	return w.amount
}

// refuseWithinApps refuses slow bodies of the apps whose first steps do not fit because of the app's own announcements:
// the slowest first, and only as many as the first waiting step of the app needs. The caller holds p.mu.
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
			case t.refused: // its share becomes free soon
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

// refuseAcrossApps refuses bodies of any app until w fits: slow ones, and after fairShareWait those of apps that use
// more than the app of w would, beginning with the app that uses most. The caller holds p.mu.
func (p *quotaPool) refuseAcrossApps(now time.Time, w *waiter) {
	_, missing := p.computeShortage(w)
	fairUsage := p.projectUsage(w)
	var candidates []*poolReservation
	for app, s := range p.apps {
		for t := range s.reservations {
			switch {
			case t.refused: // its share becomes free soon
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

// averageRate returns at how many bytes a second the body arrived since its first step, without the time in which the
// server delayed it.
func (r *poolReservation) averageRate(now time.Time) float64 {
	took := now.Sub(r.grantedAt) - time.Duration(r.pausedNanos.Load())
	return float64(r.received.Load()) / max(took, time.Millisecond).Seconds()
}

// isSlow reports whether the body still arrives, does not wait for the pool itself, and has been slower than
// minBodyRate after its grace. The caller holds the pool's mu.
func (r *poolReservation) isSlow(now time.Time) bool {
	if r.cutOff == nil || r.waiter != nil {
		return false
	}
	took := now.Sub(r.grantedAt) - time.Duration(r.pausedNanos.Load())
	return took > r.pool.grace && float64(r.received.Load()) < (took-r.pool.grace).Seconds()*minBodyRate
}

// refuseBody refuses a body that still arrives. What it reserved becomes free when its reader has noticed and releases
// it. The caller holds p.mu.
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
