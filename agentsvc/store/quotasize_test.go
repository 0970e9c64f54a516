package store_test

import (
	"strings"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/quota"
	"stoa/tenancy/db"
)

// TestBytes: the stored bytes of a tenant are the lengths of its texts, and do not count for another tenant.
func TestBytes(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		storedBytes := func(tenant db.ID) int64 {
			t.Helper()
			n, err := quota.StoredBytes(t.Context(), d, tenant)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := storedBytes("acme"); n != 0 {
			t.Errorf("nothing weighs %d", n)
		}
		run := newRun("w1")
		run.Message.Parts = []agentsvc.Part{agentsvc.TextPart(strings.Repeat("ä", 5000))}
		createTask(t, s, run)
		before := storedBytes("acme")
		if before < 10_000 || before > 11_000 {
			t.Errorf("a message of 10000 bytes weighs %d", before)
		}
		key := agentsvc.SessionKey{Owner: ana, Context: "c"}
		if _, err := s.Sessions.SaveSummary(t.Context(), key, "assistant", store.Summary{Turn: 1, Text: "öhm"}); err != nil {
			t.Fatal(err)
		}
		if n := storedBytes("acme"); n != before+4 {
			t.Errorf("four bytes more weigh %d", n-before)
		}
		if n := storedBytes("globex"); n != 0 {
			t.Errorf("another tenant has %d of them", n)
		}
	})
}
