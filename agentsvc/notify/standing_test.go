package notify_test

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/notify"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestStanding: an address of the configuration hears of the events that it wants, each so often as it says if that fails, and of
// what comes after it all the same; one that the configuration does not have any more hears nothing.
func TestStanding(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		fails := func(n int) int { // the first two times
			if n <= 2 {
				return http.StatusServiceUnavailable
			}
			return http.StatusOK
		}
		all, heardAll := receiver(t, fails)
		late, heardLate := receiver(t, well)
		broken, heardBroken := receiver(t, well)
		every := []string{notify.TaskStarted, notify.TaskCompleted, notify.TaskFailed}
		acme := desk(t, "acme", notify.Options{Own: near, Standing: map[string][]*notify.Standing{"a": {
			{ID: "all", URL: all, Events: every, Header: map[string]string{"X-Team": "blue", "Webhook-Id": "mine"}, Tries: 2, First: time.Millisecond, Longest: time.Millisecond},
			{ID: "late", URL: late, Events: every[1:], Tries: 1, Body: func(n notify.Notice) ([]byte, error) { return []byte(n.Type + " " + n.Error), nil }},
			{ID: "broken", URL: broken, Events: every, Tries: 1, Body: func(notify.Notice) ([]byte, error) { return nil, errors.New("no such field") }},
		}}})
		task := openWith(t, d, "acme", nil, "all", "late", "broken", "gone")
		run(t, d, map[db.ID]*notify.Desk{"acme": acme}, notify.CourierOptions{})
		first, second := next(t, heardAll), next(t, heardAll)
		diff(t, []string{first.body, first.header.Get("Webhook-Id"), "blue"}, []string{second.body, second.header.Get("Webhook-Id"), second.header.Get("X-Team")})
		rec := store.Record{End: store.Completed, Events: events(task.Task, task.Seq+1, status(agentsvc.Cancelled))}
		if err := store.New(d, "acme").Record(t.Context(), &task, rec); err != nil {
			t.Fatal(err)
		}
		third := next(t, heardAll)
		var got []notify.Notice
		for _, h := range []heard{first, third} {
			var n notify.Notice
			if err := json.Unmarshal([]byte(h.body), &n); err != nil {
				t.Fatalf("%s: %v", h.body, err)
			}
			if _, err := time.Parse(time.RFC3339, n.Timestamp); err != nil {
				t.Error(err)
			}
			n.Timestamp = ""
			got = append(got, n)
		}
		diff(t, []notify.Notice{
			{Type: "task.started", AgentName: "a", TaskID: string(task.Task), ContextID: "c", Status: "working"},
			{Type: "task.failed", AgentName: "a", TaskID: string(task.Task), ContextID: "c", Status: "cancelled", Error: "the task is cancelled"},
		}, got)
		if first.header.Get("Webhook-Id") == third.header.Get("Webhook-Id") || third.header.Get("Webhook-Id") == "mine" {
			t.Error("the ids do not tell the messages apart")
		}
		text := next(t, heardLate)
		diff(t, []string{"task.failed the task is cancelled", "text/plain; charset=utf-8"}, []string{text.body, text.header.Get("Content-Type")})

		want := map[string]store.ReceiverState{"all": store.ReceiverDone, "late": store.ReceiverDone, "broken": store.ReceiverDead, "gone": store.ReceiverDone}
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			list, err := store.New(d, "acme").Receivers(t.Context(), task.Task)
			if err != nil {
				t.Fatal(err)
			}
			states := map[string]store.ReceiverState{}
			for _, r := range list {
				states[r.Name()] = r.State
			}
			if maps.Equal(states, want) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("they are %v, want %v", states, want)
			}
		}
		if len(heardAll)+len(heardLate)+len(heardBroken) > 0 {
			t.Error("somebody hears more")
		}
	})
}

// TestStandingRestored: a task that goes on from what another has done is told to have started when an agent begins with it,
// wherever that stands on its log, and once: not when it goes on after an answer.
func TestStandingRestored(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		url, all := receiver(t, well)
		acme := desk(t, "acme", notify.Options{Own: near, Standing: map[string][]*notify.Standing{"a": {
			{ID: "all", URL: url, Events: []string{notify.TaskStarted, notify.TaskCompleted}, Tries: 1},
		}}})
		task, st := openWith(t, d, "acme", nil, "all"), store.New(d, "acme")
		id := agentsvc.TaskID(agentsvc.NewID())
		next := store.Run{
			Tenant: "acme", Task: id, Turn: 1, Agent: "a", Context: store.FreshContext(id), Fresh: true, Owner: task.Owner, Revision: 1, Worker: "w", Attempts: 1,
			Epoch: 1, Seq: 4, FirstSeq: 1, Notifications: []string{"all"},
		}
		said := agentsvc.Event{Message: &agentsvc.Message{ID: "m", Role: agentsvc.RoleAgent}}
		if err := st.Accept(t.Context(), next, events(id, 1, status(agentsvc.Submitted), said, said, status(agentsvc.Working)), nil); err != nil {
			t.Fatal(err)
		}
		if err := st.Record(t.Context(), &next, store.Record{Events: events(id, 5, status(agentsvc.InputRequired)), End: store.InputRequired}); err != nil {
			t.Fatal(err)
		}
		seen, err := st.Task(t.Context(), id, store.With{})
		if err != nil {
			t.Fatal(err)
		}
		again := next
		again.Turn, again.Epoch, again.FirstSeq, again.Seq, again.Notifications = 2, 2, 6, 7, nil
		if err := st.Continue(t.Context(), seen.Task, seen.Epoch, again, events(id, 6, said, status(agentsvc.Working)), nil); err != nil {
			t.Fatal(err)
		}
		if err := st.Record(t.Context(), &again, store.Record{Events: events(id, 8, status(agentsvc.Completed)), End: store.Completed}); err != nil {
			t.Fatal(err)
		}
		run(t, d, map[db.ID]*notify.Desk{"acme": acme}, notify.CourierOptions{})
		var got []string
		for len(got) < 2 || got[len(got)-1] != notify.TaskCompleted {
			var n notify.Notice
			if err := json.Unmarshal([]byte(nextOf(t, all)), &n); err != nil {
				t.Fatal(err)
			}
			if n.TaskID == string(id) {
				got = append(got, n.Type)
			}
		}
		diff(t, []string{notify.TaskStarted, notify.TaskCompleted}, got)
	})
}

func nextOf(t *testing.T, all chan heard) string {
	t.Helper()
	return next(t, all).body
}
