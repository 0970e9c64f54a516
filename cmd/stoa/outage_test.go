package main

import (
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
)

// TestStartInOutage: a process that starts while the server's issuer does not answer lets in whom the processes before it
// would; one that never had its keys does not start.
func TestStartInOutage(t *testing.T) {
	o := newForeignIssuer(t)
	config, database := o.fileWith(t, ""), "sqlite://"+filepath.Join(t.TempDir(), "stoa.db")
	log := slog.New(slog.DiscardHandler)
	hello := func(t *testing.T) {
		t.Helper()
		h := openHouseOf(t, database, log, config)
		h.want(t, http.StatusOK, nil, "POST", "/agents/assistant", o.token(nil), rpc("message:send", words("hi")))
	}
	t.Run("before", hello)
	o.down.Store(true)
	t.Run("in the outage", hello)
	if h, err := prepare(t, sqliteURL(t), log, config); err == nil {
		_ = h.close()
		t.Error("a first start without keys is no error")
	}
}
