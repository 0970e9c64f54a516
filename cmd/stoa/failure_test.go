package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"stoa/tenancy/db/dbtest"
)

// TestFailuresInEveryProtocol fails a task over every protocol, for each kind of cause: each shows its code and the model, the
// budget or the limit, as metadata.error of the last message or, for OpenAI's clients, in the error.
func TestFailuresInEveryProtocol(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, dbtest.NewSQLiteURL(t))
	conn := h.dialGRPC(t)
	const addsAgain = `
llms: {demo: {provider: scripted, script: [{then: [{call: {tool: calculator, arguments: {expression: "1+1"}}}]}]}}
tools: {calculator: {type: function, handler: calculator}}
agents: {assistant: {llm: demo, tools: [calculator], reasoning: {max_iterations: %d}}}
`
	for _, cause := range []struct {
		name, config string
		want         []string
	}{
		{"model", `
llms: {demo: {provider: scripted, script: [{then: [{fail: {status: 400, message: "upstream said no"}}]}]}}
agents: {assistant: {llm: demo}}
`, []string{`"code":"FAILED_PRECONDITION"`, `"provider":"scripted"`, `"status":400`}},
		{"budget", fmt.Sprintf(addsAgain, 9), []string{`"code":"RESOURCE_EXHAUSTED"`, `"budget":"cap"`, `"scope":"app"`, `"resets_at":null`}},
		{"limit", fmt.Sprintf(addsAgain, 2), []string{`"code":"RESOURCE_EXHAUSTED"`, `"rule":"model_calls"`}},
	} {
		t.Run(cause.name, func(t *testing.T) {
			h.createApp(t, cause.name, cause.config)
			ana, budget := h.createToken(t, cause.name, "ana", nil), "/admin/apps/"+cause.name+"/budgets"
			if cause.name == "budget" {
				h.requireStatus(t, http.StatusCreated, nil, "POST", budget, testSecret, map[string]any{"name": "cap", "unit": "calls", "amount": 1, "window": "total", "hard": true})
			}
			allowed := 0
			// allowCall gives the budget the one call of a model that the next task begins with.
			allowCall := func() {
				if allowed++; cause.name == "budget" {
					h.requireStatus(t, http.StatusOK, nil, "PUT", budget+"/cap", testSecret, map[string]any{"amount": allowed})
				}
			}
			answers := map[string]string{}
			for _, d := range dialectRequests {
				body := d.body("break")
				if d.name == "versioned" { // it does not wait unless it is asked to
					body.(map[string]any)["configuration"] = map[string]any{"blocking": true}
				}
				allowCall()
				_, answers[d.name] = h.doRequest(t, "POST", d.path, ana, body)
			}
			for name, call := range map[string][2]string{
				"A2A 1.0, gRPC": {service10 + "SendMessage", `{"message": {"messageId": "g1", "role": "ROLE_USER", "parts": [{"text": "break"}]}}`},
				"A2A 0.3, gRPC": {service03 + "SendMessage", `{"request": {"messageId": "g2", "role": "ROLE_USER", "parts": [{"text": "break"}]}, "configuration": {"blocking": true}}`},
			} {
				allowCall()
				answer, err := callGRPC(t, conn, ana, call[0], call[1], "assistant")
				if err != nil {
					t.Error(err)
				}
				answers[name] = answer
			}
			for name, answer := range answers {
				for _, want := range append(cause.want, `"error":{"`) {
					if !strings.Contains(answer, want) {
						t.Errorf("%s: the failed task has no %s: %s", name, want, answer)
					}
				}
				if strings.Contains(answer, "upstream said no") {
					t.Errorf("%s shows the upstream's text: %s", name, answer)
				}
			}
		})
	}
}
