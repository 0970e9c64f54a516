package main

import (
	"net/http"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/ratelimit"
)

// TestDeadLettersHoldNothing has a turn given up before its model answered: what it held of a limit of tokens is free again.
func TestDeadLettersHoldNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *testHouse) {
		h.want(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{
			"name":   "acme",
			"config": "llms: {demo: {provider: scripted, script: [{then: [{say: slow, pause: 1m}]}]}}\nagents: {assistant: {llm: demo}}",
			"limits": map[string]any{"rate": []any{map[string]any{"per": "app", "type": "token", "window": "month", "limit": 1000}}},
		})
		app, err := h.apps.Get(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		held := func() int64 {
			a, _, release, err := h.live.Acquire(t.Context(), app.ID)
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			who := ratelimit.Caller{Agent: "assistant"}
			g, err := a.Limits().Admit(t.Context(), who, agentsvc.Message{})
			if err != nil {
				t.Fatal(err)
			}
			a.Limits().Release(who, g.Reserve)
			return g.States[0].Used - g.Reserve.Tokens
		}
		message := words("a message of twenty-eight bytes")
		message["configuration"] = map[string]any{"blocking": false}
		var sent taskAnswer
		h.want(t, http.StatusOK, &sent, "POST", "/agents/assistant", h.token(t, "acme", "ana", nil), rpc("message:send", message))
		if held() == 0 {
			t.Fatal("nothing proved: the turn holds nothing")
		}
		run := store.Run{Tenant: app.ID, Task: agentsvc.TaskID(sent.Result.TaskID), Turn: 1, Attempts: 4}
		if err := h.giveUp(h.dead)(t.Context(), run, "none came to an end"); err != nil {
			t.Fatal(err)
		}
		if n := held(); n != 0 {
			t.Errorf("a dead letter holds %d tokens", n)
		}
	})
}
