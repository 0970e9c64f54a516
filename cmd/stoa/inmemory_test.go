package main

import (
	"net/http"
	"testing"

	"stoa/tenancy/db"
)

// TestInMemory checks that what an app keeps in memory is served like any other data, is in no table of the
// platform's database, and is deleted with the app.
func TestInMemory(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{
			"name":   "brief",
			"config": `{llms: {m: {provider: scripted}}, agents: {a: {llm: m}}, storage: {tasks: {backend: inmemory}, sessions: {backend: inmemory}}}`,
		})
		app, err := h.apps.LoadApp(t.Context(), "brief")
		if err != nil {
			t.Fatal(err)
		}
		ana, ben := h.createToken(t, "brief", "ana", nil), h.createToken(t, "brief", "ben", nil)
		var out struct {
			Result struct {
				ID string `json:"task_id"`
			} `json:"result"`
			Error struct{ Code int } `json:"error"`
		}
		h.requireStatus(t, http.StatusOK, &out, "POST", "/apps/brief/agents/a", ana, newRPCCall("message/send", newTextMessage("hello", "context_id", "c1")))
		id := out.Result.ID
		for token, want := range map[string]string{ana: id, ben: ""} {
			out.Result.ID, out.Error.Code = "", 0
			h.requireStatus(t, http.StatusOK, &out, "POST", "/apps/brief/agents/a", token, newRPCCall("tasks/get", map[string]any{"id": id}))
			if out.Result.ID != want || (out.Error.Code == -32001) != (want == "") {
				t.Errorf("%+v, want task %q", out, want)
			}
		}
		for place, c := range map[string]struct {
			d    *db.DB
			want int
		}{"the platform's database": {h.db, 0}, "memory": {h.Dependencies.InMemory.DB, 1}} {
			for _, table := range []string{"task", "run", "session_turn"} {
				if n := countRows(t, c.d, app.ID, table); n != c.want {
					t.Errorf("%s has %d rows in %s, want %d", place, n, table, c.want)
				}
			}
		}
		var b db.Batch // as if it waited for a retry
		b.Exec(nil, "UPDATE run SET state = 'pending', ready = FALSE, available_at = stoa_now() + 3600000000")
		if err := h.Dependencies.InMemory.DB.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		var queue struct {
			Pending, Completed int
			Apps               []struct {
				App     string
				Pending int
			}
		}
		h.requireStatus(t, http.StatusOK, &queue, "GET", "/admin/queue", testSecret, nil)
		if queue.Completed != 0 || queue.Pending != 1 || len(queue.Apps) != 1 || queue.Apps[0].App != "brief" || queue.Apps[0].Pending != 1 {
			t.Errorf("the queue is %+v, want the run that waits in memory", queue)
		}
		h.requireStatus(t, http.StatusNoContent, nil, "DELETE", "/admin/apps/brief", testSecret, nil)
		for _, table := range []string{"task", "event", "run", "session_turn"} {
			if n := countRows(t, h.Dependencies.InMemory.DB, app.ID, table); n != 0 {
				t.Errorf("memory has %d rows of a deleted app in %s", n, table)
			}
		}
	})
}
