package ext

import (
	"context"
	"net/http"
	"sync"
	"time"

	"stoa/agentsvc/surface"
)

const (
	pingEvery = time.Second            // how old an answer of the database may be
	pingWait  = 100 * time.Millisecond // how long whoever asks waits for a new one
	// A database that says no is gone at once; one that says nothing may be slow, and a fleet whose balancer takes
	// every process for dead answers nobody.
	patience = 4 * time.Second
)

// health tells how the process is. It asks the database once a second at most, however many ask.
type health struct {
	o Options

	mu    sync.Mutex
	asked time.Time     // when the last question began
	err   error         // what it answered last
	reply chan struct{} // closed when the question under way is answered; nil = there is none
}

func newHealth(o Options) *health { return &health{o: o} }

// database reports whether the database answers, as far as is known: it was there when the process started.
func (h *health) database(ctx context.Context) error {
	if h.o.Database == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reply == nil && time.Since(h.asked) >= pingEvery {
		h.reply, h.asked = make(chan struct{}), time.Now()
		go h.ask(context.WithoutCancel(ctx), h.reply)
	}
	if reply := h.reply; reply != nil {
		h.mu.Unlock()
		select {
		case <-reply:
		case <-time.After(pingWait):
		}
		h.mu.Lock()
	}
	return h.err
}

// ask asks the database and notes its answer. It lives no longer than patience.
func (h *health) ask(ctx context.Context, reply chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := h.o.Database(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err, h.reply = err, nil
	close(reply)
}

// Ready returns what /ready goes by, for other protocols.
func Ready(o Options) func(context.Context) error { return newHealth(o).may }

// may reports whether requests may come.
func (h *health) may(ctx context.Context) error {
	if h.o.Ready != nil {
		if err := h.o.Ready(ctx); err != nil {
			return err
		}
	}
	return h.database(ctx)
}

// health answers as long as the process serves.
func (h *health) health(w http.ResponseWriter, r *http.Request) error {
	answer := healthRecord{Status: "ok", Version: h.o.Version, Database: "connected"}
	if a := h.o.Auth; a.Enabled {
		answer.Auth = &authRecord{Enabled: true, Type: "jwt", Issuer: a.Issuer, Audience: a.Audience, ClientID: a.ClientID}
	}
	if h.database(r.Context()) != nil {
		answer.Database = "unreachable"
	}
	w.Header().Set("Cache-Control", "no-store")
	return surface.WriteJSON(w, http.StatusOK, answer)
}

// ready answers as long as requests may come, and what they are for.
func (h *health) ready(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Cache-Control", "no-store")
	if h.may(r.Context()) != nil {
		return surface.ErrNotReady
	}
	return surface.WriteJSON(w, http.StatusOK, readyRecord{Status: "ready", Role: h.o.Role})
}

// CardKeysPath is where the public keys lie that cards are signed with.
const CardKeysPath = "/.well-known/card-keys.json"

// jwks answers with public keys (RFC 7517).
func jwks(keys func() []byte) surface.Handler {
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
