package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// TestSearchTasks: tasks by the time at which they were opened, and by the text of their first and last message.
func TestSearchTasks(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		other := store.New(d, "globex")
		foreign := newRun("w1")
		foreign.Tenant = "globex"
		foreign.Message.Parts = []agentsvc.Part{agentsvc.TextPart("an Invoice")}
		createTask(t, other, foreign)
		names := map[agentsvc.TaskID]string{}
		add := func(name string, first, last agentsvc.Part) {
			run := newRun("w1")
			run.Message.Parts = []agentsvc.Part{first}
			run = createTask(t, s, run)
			names[run.Task] = name
			end := agentMessage("")
			end.Parts = []agentsvc.Part{last}
			rec := store.Record{Events: sequenceEvents(run.Task, 3, messageEvent("between"), statusEvent(agentsvc.Completed, end)), EndState: store.Completed}
			if err := s.Runs.WriteRecord(t.Context(), &run, rec); err != nil {
				t.Fatal(err)
			}
		}
		add("plain", agentsvc.TextPart("Send an INVOICE, \"now\"\n100% <sure>_"), agentsvc.TextPart("done"))
		add("answer", agentsvc.TextPart("hello"), agentsvc.TextPart("The invoice is üblich"))
		add("data", agentsvc.Part{Data: &agentsvc.Data{Value: map[string]any{"city": "Bonn"}}}, agentsvc.TextPart("ok"))
		for _, tt := range []struct {
			f    store.TaskFilter
			want []string
		}{
			{store.TaskFilter{Text: "invoice"}, []string{"answer", "plain"}},
			{store.TaskFilter{Text: "Invoice", Limit: 1}, []string{"answer"}},
			{store.TaskFilter{Text: `"now"`}, []string{"plain"}},
			{store.TaskFilter{Text: "<sure>_"}, []string{"plain"}},
			{store.TaskFilter{Text: "100%"}, []string{"plain"}},
			{store.TaskFilter{Text: "1_0%"}, nil},
			{store.TaskFilter{Text: "i%e"}, nil},
			{store.TaskFilter{Text: "üblich"}, []string{"answer"}},
			{store.TaskFilter{Text: "bonn"}, []string{"data"}},
			{store.TaskFilter{Text: "between"}, nil},
			{store.TaskFilter{Text: "invoice", State: agentsvc.Working}, nil},
			// Names of the stored form are no text.
			{store.TaskFilter{Text: "role"}, nil},
			{store.TaskFilter{Text: "parts"}, nil},
			{store.TaskFilter{Since: time.Now().Add(-time.Hour)}, []string{"data", "answer", "plain"}},
			{store.TaskFilter{Since: time.Now().Add(time.Hour)}, nil},
			{store.TaskFilter{Until: time.Now().Add(time.Hour)}, []string{"data", "answer", "plain"}},
			{store.TaskFilter{Until: time.Now().Add(-time.Hour)}, nil},
			{store.TaskFilter{Text: "invoice", Since: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)}, []string{"answer", "plain"}},
		} {
			if tt.f.Limit == 0 {
				tt.f.Limit = 10
			}
			for _, parts := range []store.TaskParts{{}, {Approvals: true}} {
				tt.f.Parts = parts
				page, err := s.Tasks.List(t.Context(), nil, tt.f)
				var got []string
				for _, task := range page.Tasks {
					got = append(got, names[task.ID])
				}
				if diff := cmp.Diff(tt.want, got); diff != "" || err != nil || page.Searched != "" {
					t.Errorf("%+v: searched %q, %v (-want +got)\n%s", tt.f, page.Searched, err, diff)
				}
			}
		}
	})
}

// TestSearchIsBounded: a search looks at some of the newest tasks, and says after which one the next goes on.
func TestSearchIsBounded(t *testing.T) {
	forEachEngine(t, func(t *testing.T, _ *db.DB, s *store.Store) {
		var all []agentsvc.TaskID
		for i := range store.MaxSearchedTasks + 3 {
			run := newRun("w1")
			run.Message.Parts = []agentsvc.Part{agentsvc.TextPart(fmt.Sprintf("number %d.", i))}
			all = append(all, createTask(t, s, run).Task)
		}
		f := store.TaskFilter{Text: "number 1.", Limit: 10}
		page, err := s.Tasks.List(t.Context(), nil, f)
		if err != nil || len(page.Tasks) != 0 || page.Searched != all[3] || page.Total != len(all) {
			t.Fatalf("%d found, searched to %s, total %d (%v), want to %s", len(page.Tasks), page.Searched, page.Total, err, all[3])
		}
		f.Before = page.Searched
		page, err = s.Tasks.List(t.Context(), nil, f)
		if err != nil || len(page.Tasks) != 1 || page.Tasks[0].ID != all[1] || page.Searched != "" {
			t.Errorf("%+v (%v)", page, err)
		}
	})
}

// TestTaskOpenings: a list has the beginning of each task's first text where it is asked for it, and of no other app's.
func TestTaskOpenings(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		add := func(s *store.Store, tenant db.ID, parts ...agentsvc.Part) {
			run := newRun("w1")
			run.Tenant = tenant
			run.Message.Parts = parts
			createTask(t, s, run)
		}
		data := agentsvc.Part{Data: &agentsvc.Data{Value: map[string]any{"city": "Bonn"}}}
		for _, parts := range [][]agentsvc.Part{
			{agentsvc.TextPart(" hello\nworld ")}, {agentsvc.TextPart(strings.Repeat("ü", 201))}, {data, agentsvc.TextPart("for this city")}, {data},
			{agentsvc.TextPart(strings.Repeat("long ", 20_000))},
		} {
			add(s, newRun("w1").Tenant, parts...)
		}
		add(store.New(d, "globex"), "globex", agentsvc.TextPart("a secret"))
		list := func(parts store.TaskParts) (openings []string) {
			page, err := s.Tasks.List(t.Context(), nil, store.TaskFilter{Limit: 10, Parts: parts})
			if err != nil {
				t.Fatal(err)
			}
			for _, task := range page.Tasks {
				openings = append(openings, task.Opening)
			}
			return openings
		}
		// A message that is too large to be read with the others has none.
		if diff := cmp.Diff([]string{"", "", "for this city", strings.Repeat("ü", 200), "hello\nworld"}, list(store.TaskParts{Approvals: true, Opening: true})); diff != "" {
			t.Errorf("openings (-want +got)\n%s", diff)
		}
		if diff := cmp.Diff(make([]string, 5), list(store.TaskParts{})); diff != "" {
			t.Errorf("openings that nobody asked for (-want +got)\n%s", diff)
		}
	})
}
