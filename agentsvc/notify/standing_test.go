package notify_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/notify"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/receiver"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestStanding checks that a standing receiver gets the events it selects, that each is attempted as often as
// configured, and the next one follows all the same; a receiver that is no longer configured gets nothing.
func TestStanding(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		fails := func(n int) int { // the first two times
			if n <= 2 {
				return http.StatusServiceUnavailable
			}
			return http.StatusOK
		}
		all, receivedAll := startReceiver(t, fails)
		late, receivedLate := startReceiver(t, respondNoContent)
		broken, receivedBroken := startReceiver(t, respondNoContent)
		every := []string{notify.TaskStarted, notify.TaskCompleted, notify.TaskFailed}
		acme := newNotifier(t, "acme", notify.Options{AppEgress: privateEgress, StandingReceivers: map[string][]*notify.StandingReceiver{"a": {
			{ID: "all", URL: all, Events: every, Header: map[string]string{"X-Team": "blue", "Webhook-Id": "mine"}, MaxAttempts: 2, InitialBackoff: time.Millisecond, MaxBackoff: time.Millisecond},
			{ID: "late", URL: late, Events: every[1:], MaxAttempts: 1, EncodeBody: func(_ context.Context, n notify.Notice) ([]byte, error) { return []byte(n.Type + " " + n.Error), nil }},
			{ID: "broken", URL: broken, Events: every, MaxAttempts: 1, EncodeBody: func(context.Context, notify.Notice) ([]byte, error) { return nil, errors.New("no such field") }},
		}}})
		task := acceptTaskWith(t, d, "acme", nil, "all", "late", "broken", "gone")
		startDispatchers(t, d, map[db.ID]*notify.Notifier{"acme": acme}, notify.DispatcherOptions{})
		first, second := nextRequest(t, receivedAll), nextRequest(t, receivedAll)
		checkEqual(t, []string{first.body, first.header.Get("Webhook-Id"), "blue"}, []string{second.body, second.header.Get("Webhook-Id"), second.header.Get("X-Team")})
		rec := store.Record{EndState: store.Completed, Events: sequenceEvents(task.Task, task.Seq+1, statusEvent(agentsvc.Cancelled))}
		if err := store.New(d, "acme").Runs.WriteRecord(t.Context(), &task, rec); err != nil {
			t.Fatal(err)
		}
		third := nextRequest(t, receivedAll)
		var got []notify.Notice
		for _, h := range []receivedRequest{first, third} {
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
		checkEqual(t, []notify.Notice{
			{Type: "task.started", AgentName: "a", TaskID: string(task.Task), ContextID: "c", Status: "working"},
			{Type: "task.failed", AgentName: "a", TaskID: string(task.Task), ContextID: "c", Status: "cancelled", Error: "the task is cancelled"},
		}, got)
		if first.header.Get("Webhook-Id") == third.header.Get("Webhook-Id") || third.header.Get("Webhook-Id") == "mine" {
			t.Error("the ids do not distinguish the messages")
		}
		text := nextRequest(t, receivedLate)
		checkEqual(t, []string{"task.failed the task is cancelled", "text/plain; charset=utf-8"}, []string{text.body, text.header.Get("Content-Type")})

		want := map[string]receiver.State{"all": receiver.Done, "late": receiver.Done, "broken": receiver.Dead, "gone": receiver.Done}
		dbtest.WaitUntil(t, fmt.Sprint(want), func() bool {
			list, err := store.New(d, "acme").Receivers.List(t.Context(), task.Task)
			if err != nil {
				t.Fatal(err)
			}
			states := map[string]receiver.State{}
			for _, r := range list {
				states[r.PublicID()] = r.State
			}
			return maps.Equal(states, want)
		})
		if len(receivedAll)+len(receivedLate)+len(receivedBroken) > 0 {
			t.Error("a receiver gets more")
		}
	})
}

// TestStandingRestored checks a task that continues from a checkpoint of another one: it is reported as started once,
// when an agent begins to work on it, wherever that is on its log, and not when it continues after an answer.
func TestStandingRestored(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		url, all := startReceiver(t, respondNoContent)
		acme := newNotifier(t, "acme", notify.Options{AppEgress: privateEgress, StandingReceivers: map[string][]*notify.StandingReceiver{"a": {
			{ID: "all", URL: url, Events: []string{notify.TaskStarted, notify.TaskCompleted}, MaxAttempts: 1},
		}}})
		task, st := acceptTaskWith(t, d, "acme", nil, "all"), store.New(d, "acme")
		id := agentsvc.TaskID(agentsvc.NewID())
		next := store.Run{
			Tenant: "acme", Task: id, Turn: 1, Agent: "a", Context: agentsvc.ContextID(agentsvc.NewID()), IsNewContext: true, Owner: task.Owner, Revision: 1, Attempts: 1, FirstSeq: 1,
			Lease: store.Lease{Worker: "w", Epoch: 1, Seq: 4},
		}
		content := agentsvc.Event{Message: &agentsvc.Message{ID: "m", Role: agentsvc.RoleAgent}}
		if err := st.Tasks.Create(t.Context(), store.NewTurn{Run: next, Events: sequenceEvents(id, 1, statusEvent(agentsvc.Submitted), content, content, statusEvent(agentsvc.Working)), Notifications: []string{"all"}}); err != nil {
			t.Fatal(err)
		}
		if err := st.Runs.WriteRecord(t.Context(), &next, store.Record{Events: sequenceEvents(id, 5, statusEvent(agentsvc.InputRequired)), EndState: store.InputRequired}); err != nil {
			t.Fatal(err)
		}
		seen, err := st.Tasks.Load(t.Context(), nil, id, store.TaskParts{})
		if err != nil {
			t.Fatal(err)
		}
		again := next
		again.Turn, again.Epoch, again.FirstSeq, again.Seq = 2, 2, 6, 7
		if err := st.Tasks.Continue(t.Context(), seen, store.NewTurn{Run: again, Events: sequenceEvents(id, 6, content, statusEvent(agentsvc.Working))}); err != nil {
			t.Fatal(err)
		}
		if err := st.Runs.WriteRecord(t.Context(), &again, store.Record{Events: sequenceEvents(id, 8, statusEvent(agentsvc.Completed)), EndState: store.Completed}); err != nil {
			t.Fatal(err)
		}
		startDispatchers(t, d, map[db.ID]*notify.Notifier{"acme": acme}, notify.DispatcherOptions{})
		var got []string
		for len(got) < 2 || got[len(got)-1] != notify.TaskCompleted {
			var n notify.Notice
			if err := json.Unmarshal([]byte(nextBody(t, all)), &n); err != nil {
				t.Fatal(err)
			}
			if n.TaskID == string(id) {
				got = append(got, n.Type)
			}
		}
		checkEqual(t, []string{notify.TaskStarted, notify.TaskCompleted}, got)
	})
}

func nextBody(t *testing.T, all chan receivedRequest) string {
	t.Helper()
	return nextRequest(t, all).body
}
