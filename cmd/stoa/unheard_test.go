package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"stoa/tenancy/db/dbtest"
)

// TestBudgetUnheard: a budget that is made while another process has calls under way counts them, within seconds and by
// itself.
func TestBudgetUnheard(t *testing.T) {
	t.Parallel()
	database := dbtest.PostgresURL(t)
	one, other := openTestHouse(t, database), openTestHouse(t, database)
	one.create(t, "acme", `
llms: {m: {provider: scripted, script: [{then: [{say: "a "}, {say: "word", pause: 4s, usage: {input_tokens: 30, output_tokens: 12}}]}]}}
agents: {assistant: {llm: m}}
`)
	ana := one.token(t, "acme", "ana", nil)
	answered := make(chan string, 1)
	go func() {
		_, body := other.say(t, ana, "hi")
		answered <- body
	}()
	within(t, 20*time.Second, "the call is under way", func() bool { return other.inflight() == 1 })
	one.want(t, http.StatusCreated, nil, "POST", "/admin/apps/acme/budgets", testSecret, map[string]any{
		"name": "cap", "unit": "tokens", "amount": 50, "window": "month", "hard": true,
	})
	if body := <-answered; !strings.Contains(body, "a word") {
		t.Fatal(body)
	}
	var list budgetAnswer
	within(t, 20*time.Second, "the budget counts it", func() bool {
		one.want(t, http.StatusOK, &list, "GET", "/admin/apps/acme/budgets", testSecret, nil)
		return list.Budgets[0].Committed == 42
	})
}
