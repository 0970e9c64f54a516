package main

import (
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
)

// TestStartInOutage starts a process while the issuer of server.auth is unavailable: it accepts the tokens that
// earlier processes accepted. A process without cached keys does not start.
func TestStartInOutage(t *testing.T) {
	o := newForeignIssuer(t)
	config, database := o.writeConfig(t, ""), "sqlite://"+filepath.Join(t.TempDir(), "stoa.db")
	log := slog.New(slog.DiscardHandler)
	hello := func(t *testing.T) {
		t.Helper()
		h := openServerWith(t, database, log, config)
		h.requireStatus(t, http.StatusOK, nil, "POST", "/agents/assistant", o.signToken(nil), newRPCCall("message:send", newTextMessage("hi")))
	}
	t.Run("before", hello)
	o.down.Store(true)
	t.Run("in the outage", hello)
	if h, err := prepareServer(t, newSQLiteURL(t), log, config); err == nil {
		_ = h.Close()
		t.Error("a first start without keys is no error")
	}
}
