package main

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

// TestWeigh: whichever processes measure what an app stores, it is noted once in an hour.
func TestWeigh(t *testing.T) {
	t.Parallel()
	h := openTestHouse(t, "sqlite://"+filepath.Join(t.TempDir(), "stoa.db"))
	h.want(t, http.StatusOK, nil, "POST", "/agents/assistant", "", rpc("message/send", words("hello")))
	for range 2 { // processes
		s := newSweeper(h.house)
		for range 2 {
			if err := s.round(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if w := s.apps[tenancy.DefaultID].weight; w.noted.IsZero() || w.due.After(time.Now().Add(time.Hour)) {
			t.Errorf("measured %+v", w)
		}
		if err := s.duty.Leave(t.Context()); err != nil {
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
