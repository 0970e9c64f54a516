package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// TestPageOfLargeTasks: a page of tasks ends after 8 MiB and has at least one task, and all pages together have every
// task completely.
func TestPageOfLargeTasks(t *testing.T) {
	forEachEngine(t, func(t *testing.T, _ *db.DB, s *store.Store) {
		for i, size := range []int{3 << 20, 3 << 20, 3 << 20, 10 << 20, 10, 100 << 10} {
			run := createTask(t, s, newRun("w1"))
			rec := store.Record{Events: sequenceEvents(run.Task, 3, messageEvent("before"), statusEvent(agentsvc.Completed, agentMessage(fmt.Sprint(i, strings.Repeat("x", size))))), EndState: store.Completed}
			if err := s.Runs.WriteRecord(t.Context(), &run, rec); err != nil {
				t.Fatal(err)
			}
		}
		for with, want := range map[store.TaskParts]string{
			{}: "5,4 3 2,1 0", {History: true}: "5,4 3 2 1 0", // the history repeats the last message
		} {
			var maximum int64
			pool := capacity.NewPool(128<<20, func(taken int64) { maximum = max(maximum, taken) })
			f := store.TaskFilter{Limit: 100, Parts: with}
			var pages []string
			for more := true; more; {
				h := pool.NewReservation("acme", 1)
				page, err := s.Tasks.List(t.Context(), h, f)
				if err != nil || len(page.Tasks) == 0 || page.Total != 6 {
					t.Fatalf("%+v: %d tasks of %d, %v", with, len(page.Tasks), page.Total, err)
				}
				h.ReleaseBytes()
				var names []string
				for _, x := range page.Tasks {
					text := x.Status.Message.Text()
					names = append(names, text[:1])
					if n := len(x.History); with.History && (n != 3 || x.History[2].Text() != text) {
						t.Errorf("task %s has %d messages", text[:1], n)
					}
					f.Before = x.ID
				}
				pages, more = append(pages, strings.Join(names, ",")), page.HasMore
			}
			if got := strings.Join(pages, " "); got != want {
				t.Errorf("%+v: pages %q, want %q", with, got, want)
			}
			if maximum < 8<<20 || maximum > 22<<20 {
				t.Errorf("%+v: %d bytes were taken at most", with, maximum)
			}
		}
	})
}

// TestLargeHistory: the oldest messages of a history that is too long are left out, artifacts never, and memory is
// reserved before the bodies are read.
func TestLargeHistory(t *testing.T) {
	forEachEngine(t, func(t *testing.T, _ *db.DB, s *store.Store) {
		run := createTask(t, s, newRun("w1"))
		artifact := agentsvc.Event{Artifact: &agentsvc.ArtifactUpdate{Last: true, Artifact: agentsvc.Artifact{ID: "a", Parts: []agentsvc.Part{agentsvc.TextPart("made")}}}}
		evs := []agentsvc.Event{artifact}
		for i := range 5 {
			evs = append(evs, messageEvent(fmt.Sprint(i, strings.Repeat("x", 10<<20))))
		}
		for i, ev := range evs { // one at a time, since a commit has a timeout
			if err := s.Runs.WriteRecord(t.Context(), &run, store.Record{Events: sequenceEvents(run.Task, int64(3+i), ev)}); err != nil {
				t.Fatal(err)
			}
		}
		with := store.TaskParts{History: true, Artifacts: true}
		got, err := s.Tasks.Load(t.Context(), nil, run.Task, with)
		var names []string
		for _, m := range got.History {
			names = append(names, m.Text()[:1])
		}
		if strings.Join(names, "") != "234" || len(got.Artifacts) != 1 || err != nil {
			t.Errorf("messages %q and %d artifacts (%v), want the last three and 1", names, len(got.Artifacts), err)
		}
		taken := int64(0)
		pool := capacity.NewPool(40<<20, func(n int64) { taken = max(taken, n) })
		if _, err := s.Tasks.Load(t.Context(), pool.NewReservation("acme", 1), run.Task, with); !errors.Is(err, agentsvc.CodeTooLarge) || taken != 0 {
			t.Errorf("read without memory for it: %v, %d bytes taken", err, taken)
		}
		if evs, err := s.Events.Load(t.Context(), pool.NewReservation("acme", 1), run.Task, 0, 100); !errors.Is(err, agentsvc.CodeTooLarge) || len(evs) > 0 {
			t.Errorf("%d events without memory for them: %v", len(evs), err)
		}
		if evs, more, err := s.Events.LoadPage(t.Context(), pool.NewReservation("acme", 1), run.Task, 3, 100, 64<<10); err != nil || len(evs) != 1 || !more || taken < 10<<20 {
			t.Errorf("a page: %d events, more %v, %d bytes taken (%v)", len(evs), more, taken, err)
		}
	})
}

// TestLargeConversation: the oldest turns of a conversation that is too long for a run are left out.
func TestLargeConversation(t *testing.T) {
	forEachEngine(t, func(t *testing.T, _ *db.DB, s *store.Store) {
		for i := range 4 {
			run := createTask(t, s, newRun("w1"))
			if err := s.Runs.WriteRecord(t.Context(), &run, completedTurn(&run, fmt.Sprint(i, strings.Repeat("x", 6<<20)))); err != nil {
				t.Fatal(err)
			}
		}
		var taken int64
		h := capacity.NewPool(64<<20, func(n int64) { taken = max(taken, n) }).NewReservation("acme", 1)
		sess, err := s.Sessions.LoadConversation(t.Context(), h, store.Run{Owner: ana, Context: "c1"})
		var names string
		for _, e := range sess.Entries {
			names += e.Message.Text()[:1]
		}
		if names != "23" || err != nil || taken < 12<<20 || taken > 13<<20 {
			t.Errorf("turns %q, %d bytes taken (%v), want the last two", names, taken, err)
		}
	})
}
