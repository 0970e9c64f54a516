package main

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

// TestSampleStorage checks that an app's storage is recorded once in an hour, whichever processes measure it.
func TestSampleStorage(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, "sqlite://"+filepath.Join(t.TempDir(), "stoa.db"))
	h.requireStatus(t, http.StatusOK, nil, "POST", "/agents/assistant", "", newRPCCall("message/send", newTextMessage("hello")))
	for range 2 { // two processes
		s := newSweeper(h.server)
		for range 2 {
			if err := s.sweepDueApps(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if s.apps[tenancy.DefaultID].storage.IsDue(time.Now()) {
			t.Error("the storage is not recorded")
		}
		if err := s.lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var n, bytes int64
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n, &bytes) }, `SELECT COUNT(*), MIN(bytes) FROM stored_sample WHERE tenant = 'default'`)
	if err := h.db.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if n != 1 || bytes < 100 {
		t.Errorf("%d samples, of %d bytes", n, bytes)
	}
}
