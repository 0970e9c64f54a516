package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// TestBegin: what BeginRun returns and changes in each state of the task.
func TestBegin(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		for _, c := range []struct {
			name string
			make func() (id agentsvc.TaskID, turn int64)
			want error
			seq  int64
			evs  int
		}{
			{"submitted", func() (agentsvc.TaskID, int64) { return createTask(t, s, newRun("")).Task, 1 }, nil, 2, 1},
			{"working", func() (agentsvc.TaskID, int64) { return createTask(t, s, newRun("w1")).Task, 1 }, nil, 2, 0},
			{"waiting", func() (agentsvc.TaskID, int64) { return createWaitingTask(t, s).ID, 1 }, store.ErrTaskInterrupted, 0, 0},
			{"another turn", func() (agentsvc.TaskID, int64) { return createTask(t, s, newRun("w1")).Task, 2 }, agentsvc.ErrLeaseLost, 0, 0},
			{"ended", func() (agentsvc.TaskID, int64) {
				seen := createWaitingTask(t, s)
				if err := s.Tasks.Cancel(t.Context(), seen, sequenceEvents(seen.ID, seen.Seq+1, statusEvent(agentsvc.Cancelled, nil))[0]); err != nil {
					t.Fatal(err)
				}
				return seen.ID, 1
			}, agentsvc.ErrLeaseLost, 0, 0},
			{"not there", func() (agentsvc.TaskID, int64) { return "no", 1 }, agentsvc.ErrNotFound, 0, 0},
		} {
			id, turn := c.make()
			run := leaseRun(t, d, id, turn)
			before := dumpTables(t, d)
			evs, err := s.Runs.BeginRun(t.Context(), &run)
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
			if c.want != nil {
				if diff := cmp.Diff(before, dumpTables(t, d)); diff != "" {
					t.Errorf("%s: left behind\n%s", c.name, diff)
				}
				continue
			}
			if run.Agent != "assistant" || run.Context != "c1" || run.Owner != ana || run.Epoch != 2 || run.Seq != c.seq || len(evs) != c.evs {
				t.Errorf("%s: began %+v with %d events", c.name, run, len(evs))
			}
			if got := loadTask(t, s, id); got.Status.State != agentsvc.Working || got.Epoch != 2 || got.Seq != c.seq {
				t.Errorf("%s: task %+v", c.name, got)
			}
			if err := s.Runs.WriteRecord(t.Context(), &run, store.Record{Events: sequenceEvents(id, run.Seq+1, messageEvent("x"))}); err != nil {
				t.Errorf("%s: the lease does not hold: %v", c.name, err)
			}
			checkGapless(t, loadLog(t, s, id), int(c.seq)+1)
		}
	})
}

func TestCancel(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		submitted, working := createTask(t, s, newRun("")), createTask(t, s, newRun("w1"))
		for _, id := range []agentsvc.TaskID{submitted.Task, working.Task, createWaitingTask(t, s).ID} {
			seen := loadTask(t, s, id)
			if err := s.Tasks.Cancel(t.Context(), seen, sequenceEvents(id, seen.Seq+1, statusEvent(agentsvc.Cancelled, nil))[0]); err != nil {
				t.Fatalf("cancel a task that is %s: %v", seen.Status.State, err)
			}
			got := loadTask(t, s, id)
			if got.Status.State != agentsvc.Cancelled || got.Epoch != seen.Epoch+1 {
				t.Errorf("%s became %s at epoch %d", seen.Status.State, got.Status.State, got.Epoch)
			}
			if state, _, worker := loadRunState(t, d, store.Run{Tenant: "acme", Task: id, Turn: 1}); state != store.Completed || worker != "" {
				t.Errorf("the run of a task that was %s is %s at %q", seen.Status.State, state, worker)
			}
			before := dumpTables(t, d)
			if err := s.Tasks.Cancel(t.Context(), got, sequenceEvents(id, got.Seq+1, statusEvent(agentsvc.Cancelled, nil))[0]); !errors.Is(err, agentsvc.ErrTaskChanged) {
				t.Errorf("cancel a task that has ended: %v", err)
			}
			if diff := cmp.Diff(before, dumpTables(t, d)); diff != "" {
				t.Errorf("cancel of an ended task left\n%s", diff)
			}
		}
	})
}

// TestList: which tasks a filter selects, on which pages, and the total.
func TestList(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		bob := agentsvc.Owner{Issuer: "stoa", Subject: "bob"}
		var all []store.Run
		for i := range 12 {
			run := newRun([]string{"", "w1"}[i%2])
			run.Agent = []string{"a", "b", "c"}[i%3]
			run.Context = agentsvc.ContextID(fmt.Sprint("c", i%4))
			if i >= 6 {
				run.Owner = bob
			}
			all = append(all, createTask(t, s, run))
		}
		other := store.New(d, "globex")
		foreign := newRun("w1")
		foreign.Tenant = "globex"
		createTask(t, other, foreign)
		slices.Reverse(all) // newest first
		for _, c := range []struct {
			name string
			f    store.TaskFilter
			in   func(store.Run) bool
		}{
			{"all", store.TaskFilter{}, func(store.Run) bool { return true }},
			{"an agent", store.TaskFilter{Agents: []string{"a"}}, func(r store.Run) bool { return r.Agent == "a" }},
			{"agents", store.TaskFilter{Agents: []string{"a", "c"}}, func(r store.Run) bool { return r.Agent != "b" }},
			{"no agents", store.TaskFilter{Agents: []string{}}, func(store.Run) bool { return false }},
			{"an owner", store.TaskFilter{Owner: &bob}, func(r store.Run) bool { return r.Owner == bob }},
			{"a stranger", store.TaskFilter{Owner: &agentsvc.Owner{Issuer: "other", Subject: "bob"}}, func(store.Run) bool { return false }},
			{"a context", store.TaskFilter{Context: "c2"}, func(r store.Run) bool { return r.Context == "c2" }},
			{"a state", store.TaskFilter{State: agentsvc.Submitted}, func(r store.Run) bool { return r.Worker == "" }},
			{"of the last hour", store.TaskFilter{After: time.Now().Add(-time.Hour)}, func(store.Run) bool { return true }},
			{"of the next hour", store.TaskFilter{After: time.Now().Add(time.Hour)}, func(store.Run) bool { return false }},
			{"several", store.TaskFilter{Agents: []string{"a"}, Owner: &ana, Context: "c0", State: agentsvc.Submitted}, func(r store.Run) bool {
				return r.Agent == "a" && r.Owner == ana && r.Context == "c0" && r.Worker == ""
			}},
		} {
			var want []agentsvc.TaskID
			for _, r := range all {
				if c.in(r) {
					want = append(want, r.Task)
				}
			}
			for _, size := range []int{1, 5, 100} {
				var got []agentsvc.TaskID
				f := c.f
				f.Limit = size
				for range all {
					listed, err := s.Tasks.List(t.Context(), nil, f)
					page, total := listed.Tasks, listed.Total
					if err != nil {
						t.Fatalf("%s: %v", c.name, err)
					}
					if total != len(want) {
						t.Errorf("%s: total %d, want %d on every page", c.name, total, len(want))
					}
					if len(page) == 0 {
						break
					}
					for _, task := range page {
						got = append(got, task.ID)
					}
					f.Before = page[len(page)-1].ID
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s by %d: want -, got +\n%s", c.name, size, diff)
				}
			}
		}
	})
}

// TestListWith: a listed task has the requested parts and equals the task as LoadTask returns it.
func TestListWith(t *testing.T) {
	forEachEngine(t, func(t *testing.T, _ *db.DB, s *store.Store) {
		for range 3 {
			run := createTask(t, s, newRun("w1"))
			made := func(text string, more bool) agentsvc.Event {
				return agentsvc.Event{Artifact: &agentsvc.ArtifactUpdate{Artifact: agentsvc.Artifact{ID: "a", Parts: []agentsvc.Part{agentsvc.TextPart(text)}}, Append: more}}
			}
			evs := sequenceEvents(run.Task, 3, messageEvent("m"), made("one", false), made("two", true), statusEvent(agentsvc.Completed, agentMessage("end")))
			if err := s.Runs.WriteRecord(t.Context(), &run, store.Record{Events: evs, EndState: store.Completed}); err != nil {
				t.Fatal(err)
			}
		}
		for _, with := range []store.TaskParts{{}, {History: true}, {Artifacts: true}, {History: true, Artifacts: true}} {
			page, err := s.Tasks.List(t.Context(), nil, store.TaskFilter{Limit: 10, Parts: with})
			tasks := page.Tasks
			if err != nil || len(tasks) != 3 {
				t.Fatalf("%d tasks (%v)", len(tasks), err)
			}
			for _, got := range tasks {
				alone, err := s.Tasks.Load(t.Context(), nil, got.ID, with)
				if diff := cmp.Diff(alone, got); err != nil || diff != "" {
					t.Errorf("with %+v: alone -, listed + (%v)\n%s", with, err, diff)
				}
				history, parts := 0, 0
				if with.History {
					history = 3
				}
				if with.Artifacts {
					parts = 2
				}
				if len(got.History) != history || with.Artifacts && len(got.Artifacts[0].Parts) != parts || !with.Artifacts && got.Artifacts != nil {
					t.Errorf("with %+v: %d messages, artifacts %+v", with, len(got.History), got.Artifacts)
				}
			}
		}
	})
}

// TestEvents: the log is read from any sequence on, in pages of any size.
func TestEvents(t *testing.T) {
	forEachEngine(t, func(t *testing.T, _ *db.DB, s *store.Store) {
		run := createTask(t, s, newRun("w1"))
		if err := s.Runs.WriteRecord(t.Context(), &run, store.Record{Events: sequenceEvents(run.Task, 3, messageEvent("a"), messageEvent("b"), messageEvent("c"))}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			after int64
			limit int
			want  []int64
		}{{-5, 2, []int64{1, 2}}, {0, 100, []int64{1, 2, 3, 4, 5}}, {2, 2, []int64{3, 4}}, {4, 2, []int64{5}}, {5, 2, nil}, {99, 2, nil}} {
			evs, err := s.Events.Load(t.Context(), nil, run.Task, c.after, c.limit)
			var got []int64
			for _, ev := range evs {
				got = append(got, ev.Seq)
			}
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("after %d, at most %d (%v):\n%s", c.after, c.limit, err, diff)
			}
		}
		if evs, err := s.Runs.LoadJournal(t.Context(), nil, run.Task, 4); err != nil || len(evs) != 2 || evs[0].Seq != 4 {
			t.Errorf("journal of a turn that began at 4: %v (%v)", evs, err)
		}
	})
}

// TestPage: a page of the log ends at its number of events or at its size, and reports whether more follow.
func TestPage(t *testing.T) {
	forEachEngine(t, func(t *testing.T, _ *db.DB, s *store.Store) {
		run := createTask(t, s, newRun("w1"))
		large := strings.Repeat("x", 10_000)
		if err := s.Runs.WriteRecord(t.Context(), &run, store.Record{Events: sequenceEvents(run.Task, 3, messageEvent(large), messageEvent(large), messageEvent("c"))}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			after int64
			limit int
			size  int64
			want  []int64
			more  bool
		}{
			{0, 100, 1 << 20, []int64{1, 2, 3, 4, 5}, false},
			{0, 2, 1 << 20, []int64{1, 2}, true},
			{0, 100, 9_000, []int64{1, 2}, true},
			{2, 100, 9_000, []int64{3}, true}, // at least one fact, or a reader could not continue
			{3, 100, 9_000, []int64{4}, true},
			{4, 100, 9_000, []int64{5}, false},
			{2, 100, 1, []int64{3}, true},
			{5, 100, 9_000, nil, false},
			{99, 100, 9_000, nil, false},
		} {
			evs, more, err := s.Events.LoadPage(t.Context(), nil, run.Task, c.after, c.limit, c.size)
			var got []int64
			for _, ev := range evs {
				got = append(got, ev.Seq)
			}
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" || more != c.more {
				t.Errorf("after %d, at most %d and %d bytes: more %v (%v)\n%s", c.after, c.limit, c.size, more, err, diff)
			}
		}
	})
}
