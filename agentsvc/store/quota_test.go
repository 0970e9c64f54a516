package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/quota"
	"stoa/tenancy/db"
)

// newLargeRun is newRun with a message of a size.
func newLargeRun(tenant db.ID, size int) store.Run {
	run := newRun("w1")
	run.Tenant = tenant
	run.Message.Parts = []agentsvc.Part{agentsvc.TextPart(strings.Repeat("x", size))}
	return run
}

// createUntilRefused accepts tasks of 100 kB until one is refused, at most 100, and returns the accepted ones.
func createUntilRefused(t *testing.T, s *store.Store, tenant db.ID) (runs []store.Run, err error) {
	t.Helper()
	for range 100 {
		run := newLargeRun(tenant, 100_000)
		if err = s.Tasks.Create(t.Context(), newTurn(run)); err != nil {
			return runs, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// TestQuota: a tenant stores up to its limit and not much more; what was begun ends, other tenants are not affected,
// and after a deletion the tenant can write again.
func TestQuota(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		refused := func(err error) bool { return agentsvc.DetailOf[agentsvc.StorageUse](err).MaxBytes > 0 }
		first := quota.New(d, quota.Options{PerTenant: 1_000_000, Advice: "do this"})
		d.SetQuota(first)
		runs, err := createUntilRefused(t, s, "acme")
		if len(runs) != 9 || !refused(err) || !strings.Contains(err.Error(), "do this") {
			t.Fatalf("%d tasks of 100 kB accepted, then %v; want 9, then a refusal", len(runs), err)
		}
		other := newLargeRun("globex", 100_000)
		if err := store.New(d, "globex").Tasks.Create(t.Context(), newTurn(other)); err != nil {
			t.Errorf("a task of another tenant: %v", err)
		}

		// Runs in progress may use an eighth more, and their end is always written.
		long := store.Record{Events: sequenceEvents(runs[0].Task, 3, messageEvent(strings.Repeat("y", 150_000)))}
		if err := s.Runs.WriteRecord(t.Context(), &runs[0], long); err != nil {
			t.Errorf("a fact within the reserve: %v", err)
		}
		long.Events = sequenceEvents(runs[1].Task, 3, messageEvent(strings.Repeat("y", 150_000)))
		if err := s.Runs.WriteRecord(t.Context(), &runs[1], long); !refused(err) {
			t.Errorf("a fact beyond the reserve: %v", err)
		}
		long.Events, long.EndState = sequenceEvents(runs[1].Task, 3, statusEvent(agentsvc.Completed, agentMessage(strings.Repeat("y", 150_000)))), store.Completed
		if err := s.Runs.WriteRecord(t.Context(), &runs[1], long); !refused(err) {
			t.Errorf("a long end beyond the reserve: %v", err)
		}
		for i := range runs {
			end := store.Record{Events: sequenceEvents(runs[i].Task, runs[i].Seq+1, statusEvent(agentsvc.Failed, agentMessage("no room"))), EndState: store.Failed}
			if err := s.Runs.WriteRecord(t.Context(), &runs[i], end); err != nil {
				t.Errorf("the end of run %d: %v", i, err)
			}
		}

		// Another process, and this one, see what is stored after a measurement.
		second := quota.New(d, quota.Options{PerTenant: 1_000_000})
		if err := errors.Join(first.MeasureTenant(t.Context(), "acme"), second.MeasureTenant(t.Context(), "acme")); err != nil {
			t.Fatal(err)
		}
		if mine, theirs := first.StoredBytes()["acme"], second.StoredBytes()["acme"]; mine != theirs || mine < 1_000_000 || mine > 1_150_000 {
			t.Errorf("measured %d, and %d in another process", mine, theirs)
		}
		if err := second.AllowWrite("acme", 100_000, db.StoresNew); !refused(err) {
			t.Errorf("a task at another process: %v", err)
		}
		if _, err := s.Sweeper.SweepExpired(t.Context(), store.Retention{Tasks: time.Nanosecond}); err != nil {
			t.Fatal(err)
		}
		if err := first.MeasureTenant(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}
		if runs, err := createUntilRefused(t, s, "acme"); len(runs) != 9 || !refused(err) {
			t.Errorf("once the old ones are deleted %d tasks are accepted, then %v; want 9", len(runs), err)
		}
	})
}
