package surface

import (
	"context"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"stoa/tenancy/db"
)

// Large bodies are in memory many times over while they become rows, so only so many bytes of them are taken in at a
// time. Who sends more waits.
const (
	appRoom  = 64 << 20         // bytes of large bodies, of one app
	allRoom  = 256 << 20        // of all
	roomWait = 10 * time.Second // for room
)

// rooms is where large bodies are taken in.
type rooms struct {
	all *semaphore.Weighted

	mu   sync.Mutex
	apps map[db.ID]*room
}

// room is that of one app, kept as long as somebody uses it.
type room struct {
	*semaphore.Weighted
	users int
}

func newRooms() *rooms {
	return &rooms{all: semaphore.NewWeighted(allRoom), apps: map[db.ID]*room{}}
}

// take waits for room for n bytes of an app's, until leave. It returns a refusal if there is none in time.
func (r *rooms) take(ctx context.Context, app db.ID, n int64) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, roomWait)
	defer cancel()
	own := r.enter(app)
	if own.Acquire(ctx, n) != nil {
		r.leave(app, own)
		return nil, errNoRoom
	}
	if r.all.Acquire(ctx, n) != nil {
		own.Release(n)
		r.leave(app, own)
		return nil, errNoRoom
	}
	return sync.OnceFunc(func() {
		r.all.Release(n)
		own.Release(n)
		r.leave(app, own)
	}), nil
}

var errNoRoom = &refusal{
	code: ResourceExhausted, status: http.StatusTooManyRequests, text: "too many large messages are being taken in, try again shortly", retry: time.Second,
}

// roomFor waits for room for the body of a tenant's request, which has it until its visit leaves the app.
func (rec *record) roomFor(r *http.Request) (err error) {
	v := rec.visit
	if v == nil || v.leaveRoom != nil {
		return nil
	}
	n := int64(maxMessage)
	if r.ContentLength > 0 {
		n = min(r.ContentLength, maxMessage)
	}
	v.leaveRoom, err = v.server.rooms.take(r.Context(), v.App.ID, n)
	return err
}

func (r *rooms) enter(app db.ID) *room {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.apps[app]
	if own == nil {
		own = &room{Weighted: semaphore.NewWeighted(appRoom)}
		r.apps[app] = own
	}
	own.users++
	return own
}

func (r *rooms) leave(app db.ID, own *room) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(r.apps, app)
	}
}
