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

// pool is an amount of something (bytes, JSON values, messages) that the bodies of all apps share. A body takes of it what it
// needs by now, in steps as it arrives, and returns all of it at once when its request is done.
//
// Two rules say what a body may take:
//
//   - What the bodies of one app have announced is at most most. A body announces once, before its first step, how much it may
//     become. So an app's bodies never wait for each other in the middle. A false announcement harms only its own app.
//   - An app may have as much as it leaves free ([queue] has the same rule for workers): alone half of the pool, and N apps that
//     take all they may leave a part of 1/(N+1). An app that has none finds some, however many others take theirs.
//
// What does not fit waits, at most roomWait. The second rule alone would not do: an app that took its half early keeps it when
// others come, and each of them gets a half of less. Therefore, as long as somebody waits, bodies that still arrive are refused:
//
//   - every one that arrives slower than minRate, and
//   - after patience, one whose app has more than the waiting app would have, the slowest first, beginning with the app that
//     has most.
//
// No more of them than what is missing needs. Nobody waits for ever: bodies of several apps that all arrived in part and wait for each
// other either have unequal parts, of which the largest gives way after patience, or equal ones, of which the first gives up after
// roomWait and leaves what it has to the rest.
type pool struct {
	size  int64         // of all
	most  int64         // that one app's bodies may announce
	grace time.Duration // in which a body need not arrive at minRate

	mu      sync.Mutex
	taken   int64
	apps    map[db.ID]*share
	waiting []*waiter // the first came first
	look    *time.Timer
	looked  time.Time // when bodies were refused for somebody's sake last
}

const (
	minRate   = 64 << 10 // bytes a second that a body arrives with, on average, while others wait
	minGrace  = 2 * time.Second
	patience  = time.Second            // of who waits with bodies that are not slow
	lookAgain = 100 * time.Millisecond // after which it is seen anew what those who wait need
)

// share is what one app has of a pool, as long as it has bodies in it. The pool's mu guards it.
type share struct {
	has       int64
	announced int64
	parts     map[*part]struct{}
}

// part is what one body has of a pool.
type part struct {
	pool *pool
	app  db.ID

	arrived atomic.Int64 // bytes, written by the body's reader
	excused atomic.Int64 // nanoseconds in which it was not the sender who was slow, written by the body's reader

	// Guarded by the pool's mu.
	has       int64
	announced int64
	began     time.Time // when it had its first room
	cut       func()    // ends the reading of a body that still arrives, nil = it has arrived
	refused   bool      // cut was called
	wait      *waiter   // nil = it waits for nothing
}

// waiter is a step that does not fit yet.
type waiter struct {
	part     *part
	n        int64
	announce int64 // of it, 0 = it has announced itself before
	since    time.Time
	done     chan error // takes one value
}

var (
	errNoRoom = &refusal{
		code: ResourceExhausted, status: http.StatusTooManyRequests, text: "too many large messages are being taken in, try again shortly", retry: time.Second,
	}
	// ErrSlow says that a message was given up for others' sake.
	ErrSlow = &refusal{
		code: ResourceExhausted, status: http.StatusTooManyRequests, retry: time.Second,
		text: "the message arrived too slowly, or its app had more room for messages than others, while others waited; try again shortly",
	}
)

func newPool(most, size int64) *pool {
	return &pool{size: size, most: most, grace: minGrace, apps: map[db.ID]*share{}}
}

// take waits until a body of an app's may have n and become announced. cut ends its reading at once; it is called under the
// pool's lock, at most once and not after [part.finish]. A cut of nil says that the body has arrived.
func (p *pool) take(ctx context.Context, app db.ID, announced, n int64, cut func()) (*part, error) {
	t := &part{pool: p, app: app, cut: cut}
	if err := p.await(ctx, &waiter{part: t, n: n, announce: announced}); err != nil {
		return nil, err
	}
	return t, nil
}

// grow waits until the body may have n more.
func (t *part) grow(ctx context.Context, n int64) error {
	began := time.Now()
	err := t.pool.await(ctx, &waiter{part: t, n: n})
	t.excused.Add(int64(time.Since(began)))
	return err
}

// finish says that the body has arrived: it is not refused any more. It returns an error if it was before.
func (t *part) finish() error {
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.refused {
		return ErrSlow
	}
	t.cut = nil
	if less := t.announced - t.has; less > 0 {
		t.announced -= less
		p.apps[t.app].announced -= less
		p.serve()
	}
	return nil
}

// leave returns what the body has.
func (t *part) leave() {
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.apps[t.app]
	if s == nil {
		return
	}
	if _, here := s.parts[t]; !here {
		return
	}
	p.taken -= t.has
	s.has -= t.has
	s.announced -= t.announced
	t.has, t.announced, t.cut = 0, 0, nil
	delete(s.parts, t)
	if len(s.parts) == 0 {
		delete(p.apps, t.app)
	}
	p.serve()
}

// await takes a step, or waits until it may be taken.
func (p *pool) await(ctx context.Context, w *waiter) error {
	p.mu.Lock()
	switch {
	case w.part.refused:
		p.mu.Unlock()
		return ErrSlow
	case p.fits(w) && (w.announce == 0 || !p.queued(w.part.app)):
		p.give(w)
		p.mu.Unlock()
		return nil
	}
	w.since, w.done = time.Now(), make(chan error, 1)
	w.part.wait = w
	p.waiting = append(p.waiting, w)
	p.relieve()
	p.mu.Unlock()

	timer := time.NewTimer(roomWait)
	defer timer.Stop()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
	case <-timer.C:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case err := <-w.done: // just in time
		return err
	default:
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(x *waiter) bool { return x == w })
	w.part.wait = nil
	p.serve() // those who came later may fit
	return errNoRoom
}

// queued reports whether a body of the app's waits to announce itself.
func (p *pool) queued(app db.ID) bool {
	return slices.ContainsFunc(p.waiting, func(w *waiter) bool { return w.announce > 0 && w.part.app == app })
}

// lacks returns how much of the app's announcements and of the pool has to become free before w fits.
func (p *pool) lacks(w *waiter) (announced, room int64) {
	s := p.apps[w.part.app]
	if s == nil {
		s = &share{}
	}
	if w.announce > 0 {
		announced = max(0, s.announced+w.announce-p.most)
	}
	return announced, max(0, s.has+w.n-(p.size-p.taken))
}

func (p *pool) fits(w *waiter) bool {
	announced, room := p.lacks(w)
	return announced == 0 && room == 0
}

func (p *pool) give(w *waiter) {
	t := w.part
	s := p.apps[t.app]
	if s == nil {
		s = &share{parts: map[*part]struct{}{}}
		p.apps[t.app] = s
	}
	if w.announce > 0 {
		s.parts[t], t.began = struct{}{}, time.Now()
	}
	s.has, s.announced = s.has+w.n, s.announced+w.announce
	t.has, t.announced = t.has+w.n, t.announced+w.announce
	p.taken += w.n
}

// serve gives those who wait what fits by now. Of those of one app that wait to announce themselves none overtakes another.
func (p *pool) serve() {
	if len(p.waiting) == 0 {
		return
	}
	var passed map[db.ID]bool
	p.waiting = slices.DeleteFunc(p.waiting, func(w *waiter) bool {
		app := w.part.app
		if !p.fits(w) || w.announce > 0 && passed[app] {
			if w.announce > 0 {
				if passed == nil {
					passed = map[db.ID]bool{}
				}
				passed[app] = true
			}
			return false
		}
		p.give(w)
		w.part.wait = nil
		w.done <- nil
		return true
	})
}

// relieve refuses bodies for the sake of those who wait, and sees to it that this is done again as long as somebody does.
func (p *pool) relieve() {
	now := time.Now()
	if len(p.waiting) == 0 {
		return
	}
	if p.look == nil {
		p.look = time.AfterFunc(lookAgain, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.look = nil
			p.relieve()
		})
	}
	if now.Sub(p.looked) < lookAgain {
		return // however many wait, bodies are looked through a few times a second
	}
	p.looked = now
	p.relieveApps(now)
	var least *waiter // who would have least is served first
	for _, w := range p.waiting {
		if announced, room := p.lacks(w); announced == 0 && room > 0 && (least == nil || p.would(w) < p.would(least)) {
			least = w
		}
	}
	if least != nil {
		p.relieveAll(now, least)
	}
	p.serve()
}

// would returns how much the app of w has with it.
func (p *pool) would(w *waiter) int64 {
	if s := p.apps[w.part.app]; s != nil {
		return s.has + w.n
	}
	return w.n
}

// relieveApps refuses slow bodies of apps whose bodies wait to announce themselves.
func (p *pool) relieveApps(now time.Time) {
	var seen map[db.ID]bool
	for _, w := range slices.Clone(p.waiting) {
		missing, _ := p.lacks(w)
		if missing == 0 || seen[w.part.app] {
			continue
		}
		if seen == nil {
			seen = map[db.ID]bool{}
		}
		seen[w.part.app] = true
		var slow []*part
		for t := range p.apps[w.part.app].parts {
			switch {
			case t.refused: // it has yet to leave
				missing -= t.announced
			case t.slow(now):
				slow = append(slow, t)
			}
		}
		slices.SortFunc(slow, func(a, b *part) int { return cmp.Compare(a.pace(now), b.pace(now)) })
		for _, t := range slow {
			if missing <= 0 {
				break
			}
			missing -= t.announced
			p.refuse(t)
		}
	}
}

// relieveAll refuses bodies of any app so that w fits.
func (p *pool) relieveAll(now time.Time, w *waiter) {
	_, missing := p.lacks(w)
	fair := p.would(w)
	var may []*part
	for app, s := range p.apps {
		for t := range s.parts {
			switch {
			case t.refused: // it has yet to leave
				missing -= t.has
			case t.slow(now), app != w.part.app && s.has > fair && t.cut != nil && now.Sub(w.since) >= patience:
				may = append(may, t)
			}
		}
	}
	slices.SortFunc(may, func(a, b *part) int {
		return cmp.Or(cmp.Compare(p.apps[b.app].has, p.apps[a.app].has), cmp.Compare(a.pace(now), b.pace(now)))
	})
	for _, t := range may {
		if missing <= 0 {
			break
		}
		missing -= t.has
		p.refuse(t)
	}
}

// pace returns how many bytes a second the body has arrived with.
func (t *part) pace(now time.Time) float64 {
	took := now.Sub(t.began) - time.Duration(t.excused.Load())
	return float64(t.arrived.Load()) / max(took, time.Millisecond).Seconds()
}

// slow reports whether the body arrives, and has done so more slowly than it may while others wait.
func (t *part) slow(now time.Time) bool {
	if t.cut == nil || t.wait != nil {
		return false
	}
	took := now.Sub(t.began) - time.Duration(t.excused.Load())
	return took > t.pool.grace && float64(t.arrived.Load()) < (took-t.pool.grace).Seconds()*minRate
}

// refuse ends the arriving of a body. What it has becomes free when its reader has noticed.
func (p *pool) refuse(t *part) {
	t.refused = true
	if w := t.wait; w != nil {
		t.wait = nil
		p.waiting = slices.DeleteFunc(p.waiting, func(x *waiter) bool { return x == w })
		w.done <- ErrSlow
		return
	}
	t.cut()
}
