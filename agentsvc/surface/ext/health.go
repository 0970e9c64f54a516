package ext

import (
	"context"
	"net/http"
	"sync"
	"time"

	"stoa/agentsvc/surface"
)

const (
	pingInterval = time.Second            // how old an answer of the database may be
	pingTimeout  = 100 * time.Millisecond // how long whoever asks waits for a new one
	// A database that says no is gone at once; one that says nothing may be slow, and a fleet whose balancer takes
	// every process for dead answers nobody.
	databaseTimeout = 4 * time.Second
)

// healthChecker tells how the process is. It asks the database once a second at most, however many ask.
type healthChecker struct {
	options Options

	mu          sync.Mutex
	checkedAt   time.Time     // when the last question began
	lastErr     error         // what it answered last
	pendingPing chan struct{} // closed when the question under way is answered; nil = there is none
}

func newHealthChecker(o Options) *healthChecker { return &healthChecker{options: o} }

// checkDatabase reports whether the database answers, as far as is known: it was there when the process started.
func (h *healthChecker) checkDatabase(ctx context.Context) error {
	if h.options.Database == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pendingPing == nil && time.Since(h.checkedAt) >= pingInterval {
		h.pendingPing, h.checkedAt = make(chan struct{}), time.Now()
		go h.pingDatabase(context.WithoutCancel(ctx), h.pendingPing)
	}
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

// pingDatabase asks the database and notes its answer. It lives no longer than patience.
func (h *healthChecker) pingDatabase(ctx context.Context, reply chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	err := h.options.Database(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastErr, h.pendingPing = err, nil
	close(reply)
}

// NewReadyCheck returns what /ready goes by, for other protocols.
func NewReadyCheck(o Options) func(context.Context) error { return newHealthChecker(o).checkReady }

// checkReady reports whether requests may come.
func (h *healthChecker) checkReady(ctx context.Context) error {
	if h.options.Ready != nil {
		if err := h.options.Ready(ctx); err != nil {
			return err
		}
	}
	return h.checkDatabase(ctx)
}

// handleHealth answers as long as the process serves.
func (h *healthChecker) handleHealth(w http.ResponseWriter, r *http.Request) error {
	answer := healthRecord{Status: "ok", Version: h.options.Version, Database: "connected"}
	if a := h.options.Auth; a.Enabled {
		answer.Auth = &authRecord{Enabled: true, Type: "jwt", Issuer: a.Issuer, Audience: a.Audience, ClientID: a.ClientID}
	}
	if h.checkDatabase(r.Context()) != nil {
		answer.Database = "unreachable"
	}
	w.Header().Set("Cache-Control", "no-store")
	return surface.WriteJSON(w, http.StatusOK, answer)
}

// handleReady answers as long as requests may come, and what they are for.
func (h *healthChecker) handleReady(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Cache-Control", "no-store")
	if h.checkReady(r.Context()) != nil {
		return surface.ErrNotReady
	}
	return surface.WriteJSON(w, http.StatusOK, readyRecord{Status: "ready", Role: h.options.Role})
}

// CardKeysPath is where the public keys lie that cards are signed with.
const CardKeysPath = "/.well-known/card-keys.json"

// newJWKSHandler answers with public keys (RFC 7517).
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
