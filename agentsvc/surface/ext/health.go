package ext

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/response"
	"stoa/tenancy/db"
)

// Bounds of the database check.
const (
	pingInterval = time.Second // a result younger than this is reused, so that probes cannot load the database
	// pingTimeout is how long a caller waits for a ping in progress before it gets the previous result.
	pingTimeout = 100 * time.Millisecond
	// databaseTimeout ends a ping. A refused connection is reported at once, but a database that does not answer
	// may only be slow. If a short stall made every process unready, the load balancer would have no target left;
	// so the previous result stays until databaseTimeout is over.
	databaseTimeout = 4 * time.Second
)

// healthChecker reports the state of the process. However many callers ask, it pings the database at most once a
// second, with one ping at a time.
type healthChecker struct {
	options Options // read-only

	// mu guards the fields below.
	mu        sync.Mutex
	checkedAt time.Time // start of the last ping
	// lastErr is the result of the last finished ping; nil at the start, since the process opened the database
	// before it serves.
	lastErr     error
	pendingPing chan struct{} // closed when the ping in progress has finished; nil = none is in progress
}

func newHealthChecker(o Options) *healthChecker { return &healthChecker{options: o} }

// checkDatabase returns the result of the last ping, after it has waited up to pingTimeout for one in progress. It
// starts a ping if the last one is older than pingInterval.
func (h *healthChecker) checkDatabase(ctx context.Context) error {
	if h.options.Database == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pendingPing == nil && time.Since(h.checkedAt) >= pingInterval {
		h.pendingPing, h.checkedAt = make(chan struct{}), time.Now()
		// The ping outlives the request that started it, since other callers use its result.
		go h.pingDatabase(context.WithoutCancel(ctx), h.pendingPing)
	}
	// Wait without the lock, so that other callers can wait for the same ping and pingDatabase can store its
	// result.
	if reply := h.pendingPing; reply != nil {
		h.mu.Unlock()
		select {
		case <-reply:
		case <-time.After(pingTimeout):
		}
		h.mu.Lock()
	}
	return h.lastErr
}

// pingDatabase pings the database, stores the result and closes reply. It ends within databaseTimeout.
func (h *healthChecker) pingDatabase(ctx context.Context, reply chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	err := h.options.Database(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastErr, h.pendingPing = err, nil
	close(reply)
}

// NewReadyCheck returns the check behind /ready, for other protocols (gRPC health). It has its own healthChecker
// and so its own pings.
func NewReadyCheck(o Options) func(context.Context) error { return newHealthChecker(o).checkReady }

// checkReady returns an error while the process must not receive requests.
func (h *healthChecker) checkReady(ctx context.Context) error {
	if h.options.Ready != nil {
		if err := h.options.Ready(ctx); err != nil {
			return err
		}
	}
	return h.checkDatabase(ctx)
}

// handleHealth answers 200 as long as the process serves, also when the database does not work: a liveness probe
// must not restart every process because of the database. The state of the database is a member of the answer, with the
// reason that /ready names.
func (h *healthChecker) handleHealth(w http.ResponseWriter, r *http.Request) error {
	answer := healthRecord{Status: "ok", Version: h.options.Version, Database: "connected"}
	if a := h.options.Auth; a.Enabled {
		answer.Auth = &authRecord{Enabled: true, Type: "jwt", Issuer: a.Issuer, Audience: a.Audience, ClientID: a.ClientID}
	}
	if s := h.options.Studio; s.File != nil {
		answer.StudioMode, answer.Studio = true, &studioRecord{Enabled: true, AllowedRoles: append([]string{}, s.AllowedRoles...)}
	}
	switch err := h.checkDatabase(r.Context()); {
	case errors.Is(err, db.ErrDiskFull):
		answer.Database, answer.DatabaseError = "disk_full", db.ErrDiskFull.Error()
	case err != nil:
		answer.Database, answer.DatabaseError = "unreachable", db.ErrUnreachable.Error()
	}
	w.Header().Set("Cache-Control", "no-store")
	return response.WriteJSON(w, http.StatusOK, answer)
}

// handleReady answers 200 with the process's role while it may receive requests, else 503.
func (h *healthChecker) handleReady(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Cache-Control", "no-store")
	if err := h.checkReady(r.Context()); err != nil {
		return apierror.NewNotReadyError(err)
	}
	return response.WriteJSON(w, http.StatusOK, readyRecord{Status: "ready", Role: h.options.Role})
}

// CardKeysPath is the path of the public keys that verify card signatures; the signatures name it (jku).
const CardKeysPath = "/.well-known/card-keys.json"

// newJWKSHandler serves a JWK set (RFC 7517), an empty one if keys is nil. Clients may cache it for 5 minutes.
func newJWKSHandler(keys func() []byte) surface.Handler {
	return func(w http.ResponseWriter, _ *http.Request) error {
		set := []byte(`{"keys":[]}`)
		if keys != nil {
			set = keys()
		}
		w.Header().Set("Content-Type", "application/jwk-set+json")
		w.Header().Set("Cache-Control", "public, max-age=300")
		_, _ = w.Write(set)
		return nil
	}
}
