package main

import (
	"net/http"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/ratelimit"
)

// TestDeadLettersReleaseTokens checks that a turn that becomes a dead letter before its model answered releases
// its reservation of a token limit.
func TestDeadLettersReleaseTokens(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{
			"name":   "acme",
			"config": "llms: {demo: {provider: scripted, script: [{then: [{say: slow, pause: 1m}]}]}}\nagents: {assistant: {llm: demo}}",
			"limits": map[string]any{"rate": []any{map[string]any{"per": "app", "type": "token", "window": "month", "limit": 1000}}},
		})
		app, err := h.apps.LoadApp(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		pending := func() int64 {
			a, _, release, err := h.runtimes.Acquire(t.Context(), app.ID)
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			who := ratelimit.Caller{Agent: "assistant"}
			g, err := a.RateLimits().CountCall(t.Context(), who, agentsvc.Message{})
			if err != nil {
				t.Fatal(err)
			}
			a.RateLimits().ReleaseTokens(who, g.Reservation)
			return g.States[0].Used - g.Reservation.Tokens
		}
		message := newTextMessage("a message of twenty-eight bytes")
		message["configuration"] = map[string]any{"blocking": false}
		var sent taskAnswer
		h.requireStatus(t, http.StatusOK, &sent, "POST", "/agents/assistant", h.createToken(t, "acme", "ana", nil), newRPCCall("message:send", message))
		if pending() == 0 {
			t.Fatal("nothing proved: the turn holds nothing")
		}
		run := store.Run{Tenant: app.ID, Task: agentsvc.TaskID(sent.Result.TaskID), Turn: 1, Attempts: 4}
		if err := h.Execution.GiveUp(t.Context(), run, "none came to an end"); err != nil {
			t.Fatal(err)
		}
		if n := pending(); n != 0 {
			t.Errorf("a dead letter holds %d tokens", n)
		}
	})
}
