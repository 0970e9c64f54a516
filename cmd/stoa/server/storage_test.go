package server

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/task"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// TestSampleStorage checks that an app's storage is recorded once in an hour, whichever processes measure it.
func TestSampleStorage(t *testing.T) {
	t.Setenv(AdminSecretName, "an-admin-secret-of-more-than-32-bytes")
	database, port, host := "sqlite://"+filepath.Join(t.TempDir(), "stoa.db"), 0, "127.0.0.1"
	mine, err := LoadDefaultApp("")
	if err != nil {
		t.Fatal(err)
	}
	s, err := ResolveSettings(Flags{Database: &database, Port: &port, Host: &host}, nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := New(t.Context(), Options{Version: "v0", Settings: s, DefaultApp: mine, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	a, _, release, err := h.Execution.Runtimes.Acquire(t.Context(), tenancy.DefaultID)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	sub := task.Submission{Agent: "assistant", Owner: agentsvc.Owner{Issuer: "stoa", Subject: "ana"}, Message: agentsvc.Message{Parts: []agentsvc.Part{agentsvc.TextPart("hello")}}, Background: true}
	if _, err := a.Tasks().Messages.Submit(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	for range 2 { // two processes
		s := newStorageSampler("sampler", h.Storage.DB, h.Apps, h.Dependencies.Billing, h.Log)
		for range 2 {
			if err := s.sampleApps(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if w := s.sizes[tenancy.DefaultID]; w == nil || w.IsDue(time.Now()) {
			t.Errorf("measured %+v", w)
		}
		if err := s.lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var n, bytes int64
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n, &bytes) }, `SELECT COUNT(*), MIN(bytes) FROM stored_sample WHERE tenant = 'default'`)
	if err := h.Storage.DB.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if n != 1 || bytes < 100 {
		t.Errorf("%d samples, of %d bytes", n, bytes)
	}
}
