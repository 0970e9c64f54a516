package main

import (
	"net/http"
	"strings"
	"testing"

	"stoa/tenancy/db/dbtest"
)

// TestBudgetUncounted checks that a budget that is created while another process has calls in progress counts them
// within seconds, without an operator's action.
func TestBudgetUncounted(t *testing.T) {
	t.Parallel()
	database := dbtest.NewPostgresURL(t)
	one, other := openTestServer(t, database), openTestServer(t, database)
	one.createApp(t, "acme", `
llms: {m: {provider: scripted, script: [{then: [{say: "a "}, {say: "word", pause: 4s, usage: {input_tokens: 30, output_tokens: 12}}]}]}}
agents: {assistant: {llm: m}}
`)
	ana := one.createToken(t, "acme", "ana", nil)
	answered := make(chan string, 1)
	go func() {
		_, body := other.sendText(t, ana, "hi")
		answered <- body
	}()
	dbtest.WaitUntil(t, "the call is under way", func() bool { return other.Execution.Inflight() == 1 })
	one.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps/acme/budgets", testSecret, map[string]any{
		"name": "cap", "unit": "tokens", "amount": 50, "window": "month", "hard": true,
	})
	if body := <-answered; !strings.Contains(body, "a word") {
		t.Fatal(body)
	}
	var list budgetAnswer
	dbtest.WaitUntil(t, "the budget counts it", func() bool {
		one.requireStatus(t, http.StatusOK, &list, "GET", "/admin/apps/acme/budgets", testSecret, nil)
		return list.Budgets[0].Committed == 42
	})
}
