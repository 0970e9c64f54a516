package ext

import (
	"context"
	"net/http"
	"sync"
	"time"

	"stoa/agentsvc/surface"
)

const (
	pingLimit = time.Second
	pingEvery = time.Second // how old an answer of the database may be
)

// health tells how the process is. It asks the database once a second at most, however many ask.
type health struct {
	o Options

	mu    sync.Mutex // one ping at a time
	asked time.Time
	err   error
}

func newHealth(o Options) *health { return &health{o: o} }

// database reports whether the database answers.
func (h *health) database(ctx context.Context) error {
	if h.o.Database == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asked.IsZero() || time.Since(h.asked) >= pingEvery {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingLimit)
		defer cancel()
		h.err, h.asked = h.o.Database(ctx), time.Now()
	}
	return h.err
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
	if h.o.Ready != nil && h.o.Ready(r.Context()) != nil || h.database(r.Context()) != nil {
		return surface.ErrNotReady
	}
	return surface.WriteJSON(w, http.StatusOK, readyRecord{Status: "ready", Role: h.o.Role})
}

// jwks answers with the public keys of the built-in issuer (RFC 7517).
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
